"""Draws every figure of the lecture: `python images/draw.py` writes images/*.png, byte for byte the same each time.

Lengths are CSS pixels at the width at which the lecture shows a figure, y pointing down; the files hold twice as many.
"""

import io
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path as Curve
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

IMAGES = Path(__file__).resolve().parent
sys.path.insert(0, str(IMAGES.parent / "tests"))

from collectives import COLLECTIVES, Buffers, sources  # noqa: E402 (its folder has just been put on the path)

SCALE = 2  # file pixels per CSS pixel
SMALL, NORMAL, LARGE = 11, 13, 15  # font sizes
MARGIN = 16
RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # Okabe and Ito; the lecture uses the same colour for the same rank
INK, QUIET, LINE, SHADE, PAPER = "#222222", "#5F5F5F", "#A8A8A8", "#E8E8E4", "#FCFCFA"
COLOURS_PER_FILE = 128
FONTS = {
    bold: FontProperties(fname=Path(matplotlib.get_data_path(), "fonts", "ttf", file))  # not the system's copy
    for bold, file in ((False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf"))
}


# ------------------------------------------------------------------------------------------------- bandwidths


@dataclass(frozen=True)
class Bandwidth:
    """A published figure: GB/s (10⁹ bytes per second), in which direction, and where it is published."""

    name: str
    gigabytes_per_second: float
    counts: str
    where: str
    source: str


TUNING_GUIDE = "https://docs.nvidia.com/cuda/{}-tuning-guide/"
DGX_GUIDE = "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html"
WIKIPEDIA = "https://en.wikipedia.org/wiki/"

HBM = Bandwidth("HBM3e (B200)", 8000, "reads and writes", "inside a GPU", TUNING_GUIDE.format("blackwell"))
NVLINK_5 = Bandwidth("NVLink 5 (B200)", 900, "each way", "between GPUs", TUNING_GUIDE.format("blackwell"))
NVLINK_4 = Bandwidth("NVLink 4 (H100)", 450, "each way", "between GPUs", TUNING_GUIDE.format("hopper"))
PCIE_7 = Bandwidth("PCIe 7.0 ×16", 242, "each way", "between devices", WIKIPEDIA + "PCI_Express")
PCIE_5 = Bandwidth("PCIe 5.0 ×16", 63, "each way", "between devices", WIKIPEDIA + "PCI_Express")
INFINIBAND = Bandwidth("InfiniBand NDR port", 50, "each way", "between nodes", DGX_GUIDE)
ETHERNET = Bandwidth("Gigabit Ethernet", 0.125, "each way", "between nodes", WIKIPEDIA + "Gigabit_Ethernet")
NVSWITCH = Bandwidth("NVSwitch", 14400, "both directions, all 8 GPUs", "between GPUs", DGX_GUIDE)
LADDER = (HBM, NVLINK_5, NVLINK_4, PCIE_7, PCIE_5, INFINIBAND, ETHERNET)

# 32 banks of 32 bits per clock: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#shared-memory-and-memory-banks
SHARED_MEMORY_BYTES_PER_CLOCK = 32 * 32 // 8


def rate(gigabytes_per_second: float) -> str:
    """`8 TB/s`, `900 GB/s`."""
    if gigabytes_per_second >= 1000:
        return f"{gigabytes_per_second / 1000:g} TB/s"
    return f"{gigabytes_per_second:g} GB/s"


# ------------------------------------------------------------------------------------------------- canvas


def ink_on(colour: str) -> str:
    """White on the dark blue, near-black on every other fill of the palette."""
    return "#FFFFFF" if colour == RANKS[0] else INK


def tint(colour: str, strength: float = 0.16) -> tuple[float, ...]:
    """The colour thinned towards the paper."""
    paper, full = (np.array(matplotlib.colors.to_rgb(each)) for each in (PAPER, colour))
    return tuple(paper + strength * (full - paper))


@dataclass
class Canvas:
    """One figure under construction, with a record of what its collective's cells say."""

    width: int
    height: int
    cells: dict[str, list[list[str] | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.figure = Figure(figsize=(self.width / 100, self.height / 100), dpi=100 * SCALE, facecolor=PAPER)
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.axis("off")

    @property
    def texts(self) -> list[Text]:
        """Every text in the figure."""
        return list(self.axes.texts)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = SMALL,
        colour: str = INK,
        align: str = "center",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Words, vertically centred on y; `size` is their font size in CSS pixels."""
        self.axes.text(
            x, y, words, fontproperties=FONTS[bold], fontsize=size * 0.72, color=colour, ha=align,
            va="center_baseline" if "\n" not in words and not turned else "center", linespacing=1.35,
            rotation=90 if turned else 0,
        )  # fmt: skip

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str | tuple[float, ...] = SHADE,
        edge: str = "none",
        radius: float = 3,
        dashed: bool = False,
    ) -> None:
        """A rectangle with rounded corners."""
        style = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=0.8,
                linestyle=(0, (3, 3)) if dashed else "-",
            )
        )  # fmt: skip

    def stripes(self, x: float, y: float, width: float, height: float, upright: bool = False) -> None:
        """Four bands in the ranks' colours, side by side or, upright, one above the other."""
        for rank, colour in enumerate(RANKS):
            if upright:
                band = Rectangle((x, y + rank * height / 4), width, height / 4, facecolor=colour, linewidth=0)
            else:
                band = Rectangle((x + rank * width / 4, y), width / 4, height, facecolor=colour, linewidth=0)
            self.axes.add_patch(band)

    def line(self, points: list[tuple[float, float]], colour: str = LINE, width: float = 1) -> None:
        """Straight strokes through the points; `width` in CSS pixels."""
        xs, ys = zip(*points, strict=True)
        self.axes.plot(xs, ys, color=colour, linewidth=width * 0.72, solid_capstyle="butt", solid_joinstyle="miter")

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str = QUIET,
        width: float = 1.2,
        both: bool = False,
    ) -> None:
        """A straight arrow, with a head at both ends if `both`."""
        self.axes.add_patch(
            FancyArrowPatch(
                start, end, arrowstyle="<|-|>" if both else "-|>", mutation_scale=7, color=colour,
                linewidth=width * 0.72, shrinkA=0, shrinkB=0, joinstyle="miter",
            )
        )  # fmt: skip

    def flow(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        """A smooth line from a sender on the left to a receiver on the right."""
        bend = (end[0] - start[0]) * 0.5
        points = [start, (start[0] + bend, start[1]), (end[0] - bend, end[1]), end]
        curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
        self.axes.add_patch(PathPatch(curve, facecolor="none", edgecolor=colour, linewidth=1.2, capstyle="butt"))

    def rank_label(self, x: float, y: float, rank: int, width: float = 54, height: float = 24) -> None:
        """`rank r` on the rank's colour, centred on y."""
        self.box(x, y - height / 2, width, height, fill=RANKS[rank])
        self.text(x + width / 2, y, f"rank {rank}", colour=ink_on(RANKS[rank]))

    def png(self, description: str) -> bytes:
        """The file: the commonest colours as a palette, with the description and the display width as metadata."""
        self.figure.canvas.draw()
        pixels = np.asarray(self.figure.canvas.buffer_rgba())[..., :3]
        colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
        commonest = colours[np.argsort(-counts, kind="stable")[:COLOURS_PER_FILE]]
        palette = Image.new("P", (1, 1))
        palette.putpalette(commonest.tobytes())
        metadata = PngInfo()
        metadata.add_itxt("Description", description)
        metadata.add_text("Display-Width", str(self.width))
        buffer = io.BytesIO()
        image = Image.fromarray(np.ascontiguousarray(pixels)).quantize(palette=palette, dither=Image.Dither.NONE)
        image.save(buffer, "PNG", optimize=True, pnginfo=metadata)
        return buffer.getvalue()


# ------------------------------------------------------------------------------------------------- hardware


def draw_gpu_node_overview(width: int) -> Canvas:
    """A data-centre node; the levels are rows, labelled in the right-hand column."""
    canvas = Canvas(width, 496)
    gpu_width, gap, left, labels = 98, 10, 28, 466
    right = left + 4 * gpu_width + 3 * gap
    canvas.box(MARGIN, 16, right - MARGIN + 12, 408, fill="none", edge=LINE, radius=6)
    canvas.text(left, 34, "one node, four of its eight GPUs drawn", colour=QUIET, align="left")

    canvas.box(left, 50, right - left, 30)
    canvas.text((left + right) / 2, 65, "NVSwitch", size=NORMAL)
    for rank, colour in enumerate(RANKS):
        x = left + rank * (gpu_width + gap)
        middle = x + gpu_width / 2
        canvas.line([(middle, 80), (middle, 118)], colour=QUIET, width=6)
        canvas.box(x, 118, gpu_width, 230, fill=tint(colour), edge=colour, radius=5)
        canvas.text(middle, 134, f"GPU {rank}", size=NORMAL, bold=True)
        for offset in (8, 4, 0):  # a pile of SMs
            canvas.box(x + 8 + offset, 150 + offset, gpu_width - 24, 92, fill=PAPER, edge=QUIET)
        canvas.text(x + 8 + (gpu_width - 24) / 2, 163, "SM", bold=True)
        for y, words in ((176, "registers"), (208, "L1/shared")):
            canvas.box(x + 12, y, gpu_width - 32, 28)
            canvas.text(x + 12 + (gpu_width - 32) / 2, y + 14, words)
        canvas.box(x + 8, 260, gpu_width - 16, 26, fill=PAPER, edge=QUIET)
        canvas.text(middle, 273, "L2 cache")
        canvas.line([(middle, 286), (middle, 302)], colour=QUIET, width=9)
        canvas.box(x + 8, 302, gpu_width - 16, 38, fill=PAPER, edge=QUIET)
        canvas.text(middle, 321, "HBM", size=NORMAL)
        canvas.line([(middle, 348), (middle, 384)], colour=QUIET, width=2.5)
        canvas.box(x + 18, 384, gpu_width - 36, 26)
        canvas.text(middle, 397, "NIC")
        canvas.line([(middle, 410), (middle, 446)], colour=QUIET, width=2)
    canvas.box(left, 446, right - left, 30)
    canvas.text((left + right) / 2, 461, "InfiniBand or Ethernet, to other nodes", size=NORMAL)

    for y, name, words in (
        (65, "NVSwitch", f"{rate(NVSWITCH.gigabytes_per_second)}, both directions,\nall eight GPUs together"),
        (103, "NVLink 5", f"{rate(NVLINK_5.gigabytes_per_second)} each way per GPU"),
        (190, "registers", "feed the arithmetic"),
        (222, "L1/shared memory", f"{SHARED_MEMORY_BYTES_PER_CLOCK} bytes per clock per SM"),
        (273, "L2 cache", "shared by all SMs"),
        (321, "HBM3e", f"{rate(HBM.gigabytes_per_second)} per GPU,\nreads and writes together"),
        (366, "PCIe 5.0 ×16", f"{rate(PCIE_5.gigabytes_per_second)} each way per GPU"),
        (428, "InfiniBand NDR", f"{rate(INFINIBAND.gigabytes_per_second)} each way per GPU"),
    ):
        canvas.text(labels, y - 8, name, align="left", bold=True)
        canvas.text(labels, y + (8 if "\n" not in words else 15), words, colour=QUIET, align="left")
    return canvas


def draw_pcie_node(width: int) -> Canvas:
    """The machine at home."""
    canvas = Canvas(width, 300)
    canvas.box(MARGIN, 16, 400, 268, fill="none", edge=LINE, radius=6)
    canvas.text(28, 34, "the machine at home", colour=QUIET, align="left")
    canvas.box(156, 56, 120, 50)
    canvas.text(216, 81, "CPU", size=NORMAL, bold=True)
    canvas.box(28, 60, 90, 42)
    canvas.text(73, 81, "memory")
    canvas.line([(118, 81), (156, 81)], colour=QUIET, width=2.5)
    canvas.box(314, 60, 90, 42)
    canvas.text(359, 81, "NIC")
    canvas.line([(276, 81), (314, 81)], colour=QUIET, width=2.5)
    canvas.line([(404, 81), (width - MARGIN - 82, 81)], colour=QUIET)
    canvas.box(width - MARGIN - 82, 60, 82, 42)
    canvas.text(width - MARGIN - 41, 81, "network")
    for rank, x in ((0, 46), (1, 246)):
        middle = x + 70
        turn = 186 if rank == 0 else 246
        canvas.line([(turn, 106), (turn, 142), (middle, 142), (middle, 178)], colour=QUIET, width=2.5)
        canvas.box(x, 178, 140, 90, fill=tint(RANKS[rank]), edge=RANKS[rank], radius=5)
        canvas.text(middle, 196, f"GPU {rank}", size=NORMAL, bold=True)
        canvas.box(x + 14, 216, 112, 38, fill=PAPER, edge=QUIET)
        canvas.text(middle, 235, "its own memory")
    return canvas


def draw_bandwidth_ladder(width: int) -> Canvas:
    """Bars on a log scale, fastest at the top."""
    top, row, left = 60, 40, 170
    canvas = Canvas(width, top + len(LADDER) * row + 80)
    smallest, largest = -1, 4  # powers of ten on the axis, in GB/s
    decade = (width - MARGIN - 40 - left) / (largest - smallest)

    def position(gigabytes_per_second: float) -> float:
        return left + (math.log10(gigabytes_per_second) - smallest) * decade

    bottom = top + len(LADDER) * row
    canvas.text(MARGIN, 26, "bandwidth on a log scale: each line is ten times the one before", NORMAL, align="left")
    for power in range(smallest, largest + 1):
        x = position(10**power)
        canvas.line([(x, top - 4), (x, bottom)], colour=SHADE)
        canvas.text(x, bottom + 14, rate(10**power), colour=QUIET)
    for index, level in enumerate(LADDER):
        y = top + index * row + row / 2
        canvas.text(left - 10, y - 7, level.name, align="right", bold=True)
        canvas.text(left - 10, y + 8, level.where, align="right", colour=QUIET)
        end = position(level.gigabytes_per_second)
        canvas.box(left, y - 10, end - left, 20, fill=LINE, radius=0)
        canvas.text(left + 6, y, f"{rate(level.gigabytes_per_second)} {level.counts}", align="left")
    return canvas


# ------------------------------------------------------------------------------------------------- collectives


def draw_ranks(width: int) -> Canvas:
    """Four processes and what joins them."""
    canvas = Canvas(width, 190)
    step = (width - 2 * MARGIN + 16) / 4
    for rank, colour in enumerate(RANKS):
        x = MARGIN + rank * step
        middle = x + (step - 16) / 2
        canvas.box(x, 20, step - 16, 96, fill=tint(colour), edge=colour, radius=5)
        canvas.box(x, 20, step - 16, 30, fill=colour, edge=colour, radius=5)
        canvas.text(middle, 35, f"rank {rank}", size=LARGE, colour=ink_on(colour), bold=True)
        canvas.text(middle, 72, "a process")
        canvas.text(middle, 94, "its own device")
        canvas.line([(middle, 116), (middle, 138)], colour=QUIET)
    canvas.box(MARGIN, 138, width - 2 * MARGIN, 30)
    canvas.text(width / 2, 153, "world size 4: messages are the only thing they share")
    return canvas


def draw_collective(name: str, width: int) -> Canvas:
    """Before on the left, after on the right, one row per rank, and a line wherever a rank's numbers go."""
    collective = COLLECTIVES[name]
    inputs = collective.example_inputs(len(RANKS))
    outputs = collective.function(inputs)
    own = [None if array is None else [[rank]] * len(array) for rank, array in enumerate(inputs)]
    origins = sources(collective, inputs)
    sums = any(len(origin) > 1 for row in origins if row for origin in row)

    canvas = Canvas(width, 268)
    top, row, cell = 62, 46, 36
    before, after = MARGIN + 66, width - MARGIN - 4 * cell
    canvas.text(MARGIN, 28, name, size=LARGE, align="left", bold=True)
    canvas.text(before, 28 if False else 50, "before", colour=QUIET, align="left")
    canvas.text(after, 50, "after", colour=QUIET, align="left")
    middles = [top + rank * row + row / 2 for rank in range(len(RANKS))]
    for receiver, row_origins in enumerate(origins):
        for sender in sorted({rank for origin in row_origins or [] for rank in origin}):
            start = before + len(inputs[sender]) * cell + 6
            canvas.flow((start, middles[sender]), (after - (22 if sums else 8), middles[receiver]), RANKS[sender])
        if sums and row_origins:
            canvas.text(after - 13, middles[receiver], "+", size=LARGE, bold=True)
    for rank in range(len(RANKS)):
        canvas.rank_label(MARGIN, middles[rank], rank)
    draw_cells(canvas, "before", before, middles, cell, inputs, own)
    draw_cells(canvas, "after", after, middles, cell, outputs, origins)
    return canvas


def draw_cells(
    canvas: Canvas,
    panel: str,
    left: float,
    middles: list[float],
    size: float,
    buffers: Buffers,
    origins: list[list[list[int]] | None],
) -> None:
    """A row of cells per rank, coloured by origin: a rank's colour, or for a sum grey with all four."""
    canvas.cells[panel] = [None if array is None else [str(value) for value in array] for array in buffers]
    for y, words, row_origins in zip(middles, canvas.cells[panel], origins, strict=True):
        if words is None:
            canvas.box(left, y - size / 2 + 2, 4 * size - 4, size - 4, fill="none", edge=LINE, dashed=True)
            continue
        for index, (word, origin) in enumerate(zip(words, row_origins, strict=True)):
            x = left + index * size
            fill = RANKS[origin[0]] if len(origin) == 1 else SHADE
            canvas.box(x, y - size / 2 + 2, size - 4, size - 4, fill=fill)
            canvas.text(x + size / 2 - 2, y - (2 if len(origin) > 1 else 0), word, size=LARGE, colour=ink_on(fill))
            if len(origin) > 1:
                canvas.stripes(x + 4, y + size / 2 - 8, size - 12, 4)


# ------------------------------------------------------------------------------------------------- training


def draw_data_parallelism(width: int) -> Canvas:
    """Rows are ranks, columns are layers; the batch is cut."""
    canvas = Canvas(width, 330)
    top, row = 60, 46
    layer_x = [230 + layer * 100 for layer in range(4)]
    canvas.text(122, 34, "data 128×1024", align="left")
    for layer, x in enumerate(layer_x):
        canvas.text(x + 38, 34, f"layer {layer}")
        canvas.line([(x + 38, top + 20), (x + 38, top + 4 * row + 14)], colour=QUIET)
        canvas.box(x - 2, top + 4 * row + 14, 80, 24)
        canvas.text(x + 38, top + 4 * row + 26, "all-reduce")
    for rank, colour in enumerate(RANKS):
        y = top + rank * row + row / 2
        canvas.rank_label(MARGIN, y, rank)
        canvas.box(122, y - row / 2, 80, row, fill=colour, radius=0)
        canvas.text(162, y, "32×1024", colour=ink_on(colour))
        for x in layer_x:
            canvas.box(x, y - 14, 76, 28, fill=tint(colour), edge=colour)
            canvas.text(x + 38, y, "1024×1024")
            canvas.arrow((x - 22, y), (x - 2, y))
    canvas.text(width / 2, 308, "every gradient is averaged over the ranks, so every copy takes the same step", colour=QUIET)
    return canvas


def draw_tensor_parallelism(width: int) -> Canvas:
    """Rows are ranks, columns are layers; every weight matrix is cut."""
    canvas = Canvas(width, 330)
    top, row = 60, 46
    canvas.text(120, 34, "data 128×1024")
    for layer in range(4):
        x = 168 + layer * 116
        canvas.text(x + 33, 34, f"layer {layer}")
        canvas.box(x + 80, top, 20, 4 * row)
        canvas.text(x + 90, top + 2 * row, "all-gather 128×1024", turned=True)
    for rank, colour in enumerate(RANKS):
        y = top + rank * row + row / 2
        canvas.rank_label(MARGIN, y, rank)
        canvas.box(84, y - 14, 70, 28)
        canvas.text(119, y, "128×1024")
        for layer in range(4):
            x = 168 + layer * 116
            canvas.arrow((x - 13, y), (x - 1, y))
            canvas.box(x, y - 14, 66, 28, fill=colour)
            canvas.text(x + 33, y, "1024×256", colour=ink_on(colour))
            canvas.arrow((x + 67, y), (x + 79, y))
    return canvas


def draw_pipeline_parallelism(width: int) -> Canvas:
    """Rows are ranks, columns are layers; the depth is cut."""
    canvas = Canvas(width, 240)
    layer_x = [230 + layer * 100 for layer in range(4)]
    for layer, x in enumerate(layer_x):
        rank = layer // 2
        y = 80 + 80 * rank
        canvas.text(x + 38, 34, f"layer {layer}")
        canvas.box(x, y - 14, 76, 28, fill=RANKS[rank])
        canvas.text(x + 38, y, "1024×1024", colour=ink_on(RANKS[rank]))
    for rank in range(2):
        canvas.rank_label(MARGIN, 80 + 80 * rank, rank)
    return canvas


PIPELINE_RANKS, MICRO_BATCHES = 2, 4


def pipeline_schedule(ranks: int, micro_batches: int) -> list[list[int | None]]:
    """Per rank, the micro-batch that it computes in each time slot, forward only; None while it waits."""
    slots = micro_batches + ranks - 1
    return [
        [slot - rank if 0 <= slot - rank < micro_batches else None for slot in range(slots)] for rank in range(ranks)
    ]


def draw_pipeline_schedule(width: int) -> Canvas:
    """Time runs to the right, one row per rank."""
    canvas = Canvas(width, 240)
    schedule = pipeline_schedule(PIPELINE_RANKS, MICRO_BATCHES)
    left, slot, row = MARGIN + 70, (width - 2 * MARGIN - 70) / len(schedule[0]), 50
    for rank, micro_batches in enumerate(schedule):
        y = 40 + rank * row
        canvas.rank_label(MARGIN, y + 22, rank)
        for index, micro_batch in enumerate(micro_batches):
            x = left + index * slot
            if micro_batch is None:
                canvas.axes.add_patch(
                    Rectangle((x + 2, y), slot - 4, row - 6, facecolor=PAPER, edgecolor=LINE, hatch="///", linewidth=0.8)
                )
                continue
            canvas.box(x + 2, y, slot - 4, row - 6, fill=RANKS[rank])
            canvas.text(x + slot / 2, y + 22, f"micro-batch {micro_batch}", colour=ink_on(RANKS[rank]))
    return canvas


# ------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Picture:
    """A file: how to draw it, at how many CSS pixels the lecture shows it, and its alternative text."""

    draw: Callable[[int], Canvas]
    width: int
    description: str


def collective_picture(name: str, effect: str) -> Picture:
    """The picture of one collective operation among four ranks."""
    return Picture(lambda width: draw_collective(name, width), 520, f"{name} among four ranks, before and after: {effect}.")


PICTURES = {
    "gpu-node-overview": Picture(
        draw_gpu_node_overview,
        640,
        "A node of GPUs, each with SMs (registers, L1/shared memory), an L2 cache and HBM, joined by NVLink to an NVSwitch "
        "and through a network card per GPU to other nodes, with the bandwidth of each level.",
    ),
    "pcie-node": Picture(
        draw_pcie_node,
        520,
        "The machine at home: two GPUs hang on the CPU by PCIe, beside the CPU's memory and an Ethernet card to the network.",
    ),
    "bandwidth-ladder": Picture(
        draw_bandwidth_ladder,
        640,
        "Bars on a log scale of the bandwidth of HBM, NVLink, PCIe, InfiniBand and gigabit Ethernet, "
        "from 8 TB/s down to 0.125 GB/s.",
    ),
    "ranks": Picture(draw_ranks, 520, "Four ranks, each a process with its own device, joined only by the messages they send."),
    "broadcast": collective_picture("broadcast", "rank 0's four numbers are copied to every rank"),
    "scatter": collective_picture("scatter", "rank 0's four numbers are dealt out, one to each rank"),
    "gather": collective_picture("gather", "one number from each rank is collected on rank 0"),
    "reduce": collective_picture("reduce", "one number from each rank is summed on rank 0"),
    "all-gather": collective_picture("all-gather", "one number from each rank is collected on every rank"),
    "reduce-scatter": collective_picture(
        "reduce-scatter", "the ranks' rows of four are summed, and each rank keeps one of the four sums"
    ),
    "all-reduce": collective_picture("all-reduce", "the ranks' rows of four are summed, and every rank receives all four sums"),
    "all-to-all": collective_picture(
        "all-to-all", "each rank sends its r-th number to rank r, which transposes the table of numbers"
    ),
    "data-parallelism": Picture(
        draw_data_parallelism,
        640,
        "Data parallelism: four ranks each hold a quarter of the batch, 32×1024, and a copy of all four layers, "
        "and all-reduce every gradient.",
    ),
    "tensor-parallelism": Picture(
        draw_tensor_parallelism,
        640,
        "Tensor parallelism: four ranks each hold the whole batch and a 1024×256 slice of every layer, "
        "and all-gather the activations after each layer.",
    ),
    "pipeline-parallelism": Picture(
        draw_pipeline_parallelism,
        640,
        "Pipeline parallelism: rank 0 holds the first two layers and rank 1 the last two, "
        "and micro-batches of 32×1024 activations are sent from one to the other.",
    ),
    "pipeline-schedule": Picture(
        draw_pipeline_schedule,
        640,
        "Two ranks compute four micro-batches in five time slots, rank 1 one slot behind rank 0, "
        "so each waits for one slot of five: the bubble.",
    ),
}


def draw(name: str) -> Canvas:
    """The figure, drawn with matplotlib's own defaults whatever the reader's settings."""
    with matplotlib.style.context("default"):
        canvas = PICTURES[name].draw(PICTURES[name].width)
        canvas.figure.canvas.draw()
    return canvas


def write_all(folder: Path) -> None:
    """Writes every figure as folder/NAME.png."""
    for name, picture in PICTURES.items():
        with matplotlib.style.context("default"):
            (folder / f"{name}.png").write_bytes(draw(name).png(picture.description))


if __name__ == "__main__":
    write_all(IMAGES)
