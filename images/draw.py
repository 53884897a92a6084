"""Draws every figure of the lecture: `python images/draw.py` writes images/*.png, byte for byte the same each time.

The table below says which module draws which file; canvas.py holds what they share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib.style
from bandwidths import ETHERNET, HBM, INFINIBAND, NVLINK_5, SHARED_MEMORY, draw_bandwidth_ladder, rate
from canvas import Canvas
from collective_figures import draw_collective, draw_ranks
from machines import draw_gpu_node_overview, draw_pcie_node, draw_rank_to_wire
from pipeline_schedules import draw_pipeline_1f1b, draw_pipeline_schedule
from ring import draw_ring_all_reduce
from strategies import draw_data_parallelism, draw_pipeline_parallelism, draw_tensor_parallelism

IMAGES = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Picture:
    """How to draw a file, at how many CSS pixels the lecture shows it, and its alternative text."""

    draw: Callable[[int], Canvas]
    width: int
    description: str


def collective_picture(name: str, effect: str) -> Picture:
    """The picture of one collective operation."""
    return Picture(partial(draw_collective, name), 520, f"{name} among four ranks: {effect}.")


PICTURES = {
    "gpu-node-overview": Picture(
        draw_gpu_node_overview,
        640,
        "A DGX B200 node: SMs with registers and L1/shared memory, L2 cache and HBM inside each GPU, NVLink to the "
        "NVSwitch chips, and a network card per GPU to other nodes, past the CPU, each with its bandwidth where cited.",
    ),
    "pcie-node": Picture(
        draw_pcie_node,
        640,
        "The machine at home: PCIe joins two GPUs, each with its own memory, to the CPU, "
        "and a network card joins the machine to gigabit Ethernet.",
    ),
    "bandwidth-ladder": Picture(
        draw_bandwidth_ladder,
        640,
        "Bandwidths of both directions together on a log scale: L1/shared memory of all SMs of an H100 about "
        f"{rate(round(SHARED_MEMORY.bandwidth, -3))}, HBM3e of a B200 {HBM}, its NVLink {NVLINK_5}, "
        f"its InfiniBand port {INFINIBAND}, and gigabit Ethernet {ETHERNET}.",
    ),
    "rank-to-wire": Picture(
        draw_rank_to_wire,
        640,
        "From a rank to the wire: without RDMA, a tensor is copied from the GPU to CPU memory and again into the "
        "kernel's socket buffer, and TCP cuts it into packets; with RDMA, the network card reads the GPU's memory, "
        "and a CPU thread only posts the transfers.",
    ),
    "ranks": Picture(
        draw_ranks, 520, "Four ranks, each a process with its own memory and device, that share nothing but messages."
    ),
    "broadcast": collective_picture("broadcast", "rank 0's four numbers are copied to every rank"),
    "scatter": collective_picture("scatter", "rank 0's four numbers are dealt out, one to each rank"),
    "gather": collective_picture("gather", "one number from each rank is collected on rank 0"),
    "reduce": collective_picture("reduce", "one number from each rank is summed on rank 0"),
    "all-gather": collective_picture("all-gather", "one number from each rank is collected on every rank"),
    "reduce-scatter": collective_picture(
        "reduce-scatter", "four numbers from each rank are summed by position, and each rank gets one of the sums"
    ),
    "all-reduce": collective_picture(
        "all-reduce", "four numbers from each rank are summed by position, and every rank gets all four sums"
    ),
    "ring-all-reduce": Picture(
        draw_ring_all_reduce,
        640,
        "All-reduce around a ring of four ranks: three steps in which each rank sends a piece to the next, which adds "
        "it, leave one finished sum on each rank, and three more steps bring all four sums to every rank.",
    ),
    "all-to-all": collective_picture(
        "all-to-all", "each rank sends one of its four numbers to each rank, which transposes the table of numbers"
    ),
    "data-parallelism": Picture(
        draw_data_parallelism,
        640,
        "Data parallelism: four ranks each have a quarter of the batch, 32×1024, and a copy of all four layers, "
        "and all-reduce averages every layer's gradient.",
    ),
    "tensor-parallelism": Picture(
        draw_tensor_parallelism,
        640,
        "Tensor parallelism: four ranks each have the whole batch and a 1024×256 slice of every layer, "
        "and all-gather joins the activations after each layer.",
    ),
    "pipeline-parallelism": Picture(
        draw_pipeline_parallelism,
        640,
        "Pipeline parallelism: rank 0 has the first two layers and rank 1 the last two, "
        "and rank 0 sends activations of 32×1024 once per micro-batch.",
    ),
    "pipeline-schedule": Picture(
        draw_pipeline_schedule,
        640,
        "Two ranks compute four micro-batches in five time slots, rank 1 a slot behind rank 0, "
        "so that each waits for one slot of the five, the bubble.",
    ),
    "pipeline-1f1b": Picture(
        draw_pipeline_1f1b,
        640,
        "GPipe above 1F1B for four ranks and eight micro-batches: the bubble takes 3/11 of the time in both, but ranks "
        "store activations of 8, 8, 8 and 8 micro-batches with GPipe, and of at most 4, 3, 2 and 1 with 1F1B.",
    ),
}


def draw(name: str) -> Canvas:
    """The figure, rendered, whatever the reader's matplotlib settings."""
    with matplotlib.style.context("default"):
        canvas = PICTURES[name].draw(PICTURES[name].width)
        canvas.figure.canvas.draw()
    return canvas


def write_all(folder: Path) -> None:
    """Writes every figure as folder/NAME.png."""
    for name, picture in PICTURES.items():
        (folder / f"{name}.png").write_bytes(draw(name).png(picture.description))


if __name__ == "__main__":
    write_all(IMAGES)
