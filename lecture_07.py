"""Lecture 7: parallelism across GPUs. This program is the lecture.

python lecture_07.py                        runs every demo on real processes, one for each rank
python -m edtrace.execute -m lecture_07     traces it line by line into var/traces/lecture_07.json
"""

import math
import sys
import time
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from edtrace import link, note, text

from gpu_util import cuda_if_available, launched
from lecture_util import article_link, image, run, untraced
from rank_util import RANK_TIMEOUT, join_store, report_rank_done
from spawn_util import (
    benchmark_num_elements,
    import_untraced,
    run_launched_rank,
    say_that_only_rank_0_runs,
    watched_ranks,
)

if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda device=None: None  # a CPU has nothing to wait for


def main() -> None:
    text("# Parallelism across GPUs")
    text("Last time: one GPU. This time: many of them, in one machine (a node) and in many.")
    image("images/gpu-node-overview.png", width=640)
    text("Arithmetic happens in the SMs (streaming multiprocessors). What it needs, parameters, activations, gradients and optimizer state, may lie far away: in the GPU's memory, in another GPU, in another machine.")
    text("So the craft is the same at every level: **arrange the work so that little data moves, and only over short distances**.")

    text("The hierarchy of memories and links, from fastest to slowest, each counted in both directions together:")
    text("| level | joins | TB/s |\n|---|---|---|\n| **L1 / shared memory** | an SM and its 256 KB ([Hopper tuning guide](https://docs.nvidia.com/cuda/hopper-tuning-guide/)) | about 30, all SMs of an H100 |\n| **HBM** (high-bandwidth memory) | a GPU and its memory | 8, a B200 ([Blackwell tuning guide](https://docs.nvidia.com/cuda/blackwell-tuning-guide/)) |\n| **NVLink / NVSwitch** | the GPUs of a node | 1.8, a B200 ([Blackwell tuning guide](https://docs.nvidia.com/cuda/blackwell-tuning-guide/)) |\n| **InfiniBand / Ethernet** | nodes | 0.1, a port of 400 Gb/s, one for each GPU of a DGX B200 ([user guide](https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html)) |")
    text("An H100's 132 SMs read 128 bytes in a clock each ([32 banks of 4 bytes](https://docs.nvidia.com/cuda/cuda-c-programming-guide/)), at about 1.8 GHz ([H100](https://www.nvidia.com/en-us/data-center/h100/)): 30 TB/s. 8 TB/s is nominal: in an HGX B200 it is 7.7 TB/s ([HGX](https://www.nvidia.com/en-us/data-center/hgx/)). Like for like, HBM is 4.4 times as fast as NVLink, and NVLink 18 times as fast as an InfiniBand port: 80 times from HBM to InfiniBand.")
    image("images/bandwidth-ladder.png", width=640)
    text("Inside one GPU, one **fuses and tiles** to spare HBM. Between GPUs, one **replicates and shards** (copies, and cuts into parts) to spare the links.")

    text("Two reasons to use several GPUs:")
    text("- It does not fit. In float32 and with AdamW, a parameter, its gradient and its optimizer state take 16 bytes. With 70 billion parameters that is 1.12 TB, before the first activation; a B200 has 180 GB ([HGX](https://www.nvidia.com/en-us/data-center/hgx/)).")
    text("- It should finish sooner: more GPUs, more arithmetic at the same time.")

    # Running this file starts one process for each rank; they communicate and print the log.
    # Tracing it, which gives the page its steps, runs rank 0 alone, and nothing is communicated.
    link(title="stdout for this lecture", url="var/traces/lecture_07_stdout.txt")
    note("On the page that trace_page builds, the values that every rank held in a recorded run stand beside each line. A bare trace, as edtrace writes it, shows which lines rank 0 runs and nothing that would have come from another rank.")

    text("# Part 1: building blocks")
    collective_operations()  # what GPUs can tell each other
    hardware()               # over which links
    torch_distributed()      # with which library
    benchmarking()           # how fast

    text("# Part 2: training strategies")
    text("The model is a deep MLP (multilayer perceptron), bare of everything else: each layer is a matrix product and a gelu. It stands for more: of the 12 $d^2$ weights in a classic Transformer block of width $d$, 8 $d^2$ lie in such layers, and so does, unless sequences are long, most of the arithmetic.")
    text("Data parallelism is the foundation. Tensor parallelism, inside a node, and pipeline parallelism, across nodes, are the workhorses of models that do not fit. All-to-all, which this lecture only defines, is what experts need.")
    text("One simplification: `get_init_params` seeds the random generator anew on every call, so **all layers, and all shards of a layer, start equal**. That way ranks agree without a message. Real code must not do that, as equal shards compute equal activations and learn the same thing. It seeds by layer and shard, or draws the parameters once and broadcasts or scatters them.")
    data_parallelism()       # cut along the batch
    tensor_parallelism()     # cut along the width
    pipeline_parallelism()   # cut along the depth

    text("## Which cut wants which link?")
    text("A GPU waits when its link cannot keep up. Compare two ratios of arithmetic to bytes sent. What the hardware offers: a B200 does 2.25 PFLOP/s (dense BF16, [HGX](https://www.nvidia.com/en-us/data-center/hgx/)). NVLink carries 0.9 TB/s each way: 2500 FLOP for each byte sent. An InfiniBand port carries 0.05 TB/s: 45 000 FLOP for each byte. What each cut has to offer, with 2 bytes an element:")
    text("- **Data**: for each parameter, the backward pass does 4 FLOP a token, and the all-reduce of gradients sends about 2 × 2 bytes. So a byte comes with as many FLOP as there are tokens on the GPU.")
    text("- **Tensor**, over $n$ ranks: for each token, a layer does $2 d \\cdot d/n$ FLOP, and sends $d/n$ elements to each of $n - 1$ ranks: $d/(n - 1)$ FLOP a byte. The batch cancels.")
    text("- **Pipeline**, with $k$ layers in a stage: for each token, a stage does $2 d^2 k$ FLOP and sends $d$ elements on: $d k$ FLOP a byte.")
    text("| cut | FLOP a byte | enough for NVLink | enough for InfiniBand |\n|---|---|---|---|\n| data, all-reduce during the backward pass | tokens per GPU | 2500 tokens | 45 000 tokens |\n| tensor, $n = 4$ | $d/(n - 1)$ | $d$ = 7500 | $d$ = 135 000 |\n| pipeline, $d$ = 8192 | $d k$ | 1 layer | 6 layers |")
    text("So tensor parallelism stays on NVLink, inside a node or a rack, whatever the batch. Data parallelism crosses nodes if the batch is large. Pipeline parallelism crosses them with a few layers in a stage.")
    text("And here? In a step of data parallelism a rank sends 25 MB, the all-reduce of 4 gradients of 1024 × 1024. In a forward pass of tensor parallelism it sends 1.6 MB, in each of 4 layers activations of 128 × 256 to 3 ranks; of pipeline parallelism 0.52 MB, 4 micro-batches with activations of 32 × 1024. The batch is small: beyond 2048 rows, the forward pass of tensor parallelism alone sends more than data parallelism does.")

    text("# What is missing")
    text("- **Overlap** of communication with computation: every demo here computes, then communicates, then computes. Real systems do both at once, and much of their complexity is there.")
    text("- **General models**, with attention, embeddings and norms, where it takes more bookkeeping to say what is cut along which dimension.")
    text("- **Sequence and expert parallelism**, and **combinations**: tensor parallelism inside a node, pipeline stages across nodes, data parallelism around both.")
    text("- **The JAX / TPU way**: declare the model and how its arrays are sharded, and a compiler places the collectives. This lecture uses PyTorch because there one sees them.")
    link(title="levanter", url="https://crfm.stanford.edu/2023/06/16/levanter-1_0-release.html")

    text("# Summary")
    text("- **Where to cut**: the batch (data), the width (tensor), the depth (pipeline), the length (sequence).")
    text("- Data parallelism: **DDP** replicates the parameters and all-reduces gradients; **FSDP / ZeRO-3** shards the parameters, all-gathers them before use and reduce-scatters gradients.")
    text("- **Tensor parallelism** communicates in every layer, so it wants the fastest links. **Pipeline parallelism** tolerates slow ones and fights bubbles.")
    text("- For each value that is needed again, one may **recompute** it, **store** it, or **store it elsewhere and communicate**.")
    text("- Hardware grows, and the hierarchy stays.")


def collective_operations() -> None:
    text("## Collective operations")
    text("**Collective operations** are the vocabulary of distributed programs, and older than GPUs. Each names a pattern of communication in which a whole group of processes takes part.")
    article_link("https://en.wikipedia.org/wiki/Collective_operation")
    image("images/ranks.png", width=520)
    text("- **Rank**: the number of a process, here one for each GPU: 0, 1, 2, 3.")
    text("- **World size**: how many ranks there are: 4.")
    text("Why not write the sends and receives by hand (point-to-point)? A collective says *what* should hold afterwards. The library decides *how*: along a ring, along a tree, inside the switch. A collective is shorter, faster, and harder to deadlock. One rule remains: **all ranks call the same collectives in the same order**. If rank 2 skips one, the others wait in it for rank 2's part, until a timeout.")
    text("In each example, `None` means that the rank contributes or receives nothing.")

    text("### Broadcast")
    text("Rank 0's tensor is copied to every rank. In training: hand the initial parameters to everybody.")
    image("images/broadcast.png", width=520)
    # Input
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = None                            # @inspect rank1
    rank2 = None                            # @inspect rank2
    rank3 = None                            # @inspect rank3
    # Output
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = torch.tensor([0., 1., 2., 3.])  # @inspect rank1
    rank2 = torch.tensor([0., 1., 2., 3.])  # @inspect rank2
    rank3 = torch.tensor([0., 1., 2., 3.])  # @inspect rank3

    text("### Scatter")  # @clear rank0 rank1 rank2 rank3
    text("Rank 0's tensor is dealt out, an equal piece to each rank. In training: hand each rank its part of a batch that one rank has read.")
    image("images/scatter.png", width=520)
    # Input
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = None                            # @inspect rank1
    rank2 = None                            # @inspect rank2
    rank3 = None                            # @inspect rank3
    # Output
    rank0 = torch.tensor([0.])  # @inspect rank0
    rank1 = torch.tensor([1.])  # @inspect rank1
    rank2 = torch.tensor([2.])  # @inspect rank2
    rank3 = torch.tensor([3.])  # @inspect rank3

    text("### Gather")  # @clear rank0 rank1 rank2 rank3
    text("The inverse: the pieces of all ranks are put together on rank 0. In training: collect the parts of a result, say predictions, in one place to write them down.")
    image("images/gather.png", width=520)
    # Input
    rank0 = torch.tensor([0.])  # @inspect rank0
    rank1 = torch.tensor([1.])  # @inspect rank1
    rank2 = torch.tensor([2.])  # @inspect rank2
    rank3 = torch.tensor([3.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = None                            # @inspect rank1
    rank2 = None                            # @inspect rank2
    rank3 = None                            # @inspect rank3

    text("### Reduce")  # @clear rank0 rank1 rank2 rank3
    text("The tensors of all ranks are combined, element by element, into one on rank 0. Here by a sum; product, minimum, maximum and average work as well. In training: sum up the loss or a metric for the log.")
    image("images/reduce.png", width=520)
    # Input
    rank0 = torch.tensor([0.])  # @inspect rank0
    rank1 = torch.tensor([1.])  # @inspect rank1
    rank2 = torch.tensor([2.])  # @inspect rank2
    rank3 = torch.tensor([3.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6.])  # @inspect rank0
    rank1 = None                # @inspect rank1
    rank2 = None                # @inspect rank2
    rank3 = None                # @inspect rank3

    text("### All-gather")  # @clear rank0 rank1 rank2 rank3
    text("Gather, but every rank gets the whole. In training: put sharded parameters together before a layer uses them (FSDP, fully sharded data parallelism), or sharded activations (tensor parallelism).")
    image("images/all-gather.png", width=520)
    # Input
    rank0 = torch.tensor([0.])  # @inspect rank0
    rank1 = torch.tensor([1.])  # @inspect rank1
    rank2 = torch.tensor([2.])  # @inspect rank2
    rank3 = torch.tensor([3.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = torch.tensor([0., 1., 2., 3.])  # @inspect rank1
    rank2 = torch.tensor([0., 1., 2., 3.])  # @inspect rank2
    rank3 = torch.tensor([0., 1., 2., 3.])  # @inspect rank3

    text("### Reduce-scatter")  # @clear rank0 rank1 rank2 rank3
    text("Reduce, then scatter: the sum over all ranks, of which each rank gets its piece. In training: sum up gradients where each rank needs only those of its own shard of the parameters (FSDP).")
    image("images/reduce-scatter.png", width=520)
    # Input
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = torch.tensor([1., 2., 3., 4.])  # @inspect rank1
    rank2 = torch.tensor([2., 3., 4., 5.])  # @inspect rank2
    rank3 = torch.tensor([3., 4., 5., 6.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6.])   # @inspect rank0
    rank1 = torch.tensor([10.])  # @inspect rank1
    rank2 = torch.tensor([14.])  # @inspect rank2
    rank3 = torch.tensor([18.])  # @inspect rank3

    text("### All-reduce")  # @clear rank0 rank1 rank2 rank3
    text("Reduce, but every rank gets the result. In training: average the gradients in data parallelism (DDP, distributed data parallelism). **All-reduce = reduce-scatter + all-gather**: first each rank gets its piece of the sum, then all get all pieces. Between the two a rank holds only its piece. ZeRO and FSDP live there: with a piece of the gradients, a rank updates just its piece of the parameters.")
    image("images/all-reduce.png", width=520)
    # Input
    rank0 = torch.tensor([0., 1., 2., 3.])  # @inspect rank0
    rank1 = torch.tensor([1., 2., 3., 4.])  # @inspect rank1
    rank2 = torch.tensor([2., 3., 4., 5.])  # @inspect rank2
    rank3 = torch.tensor([3., 4., 5., 6.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6., 10., 14., 18.])  # @inspect rank0
    rank1 = torch.tensor([6., 10., 14., 18.])  # @inspect rank1
    rank2 = torch.tensor([6., 10., 14., 18.])  # @inspect rank2
    rank3 = torch.tensor([6., 10., 14., 18.])  # @inspect rank3

    text("### All-to-all")  # @clear rank0 rank1 rank2 rank3
    text("Each rank has a piece for each rank: write the inputs as rows of a matrix, and the outputs are its columns (a transpose). It is the most general collective, as each rank tells each other one something else. In training: send each token to the rank that holds its expert, and back (mixture of experts). There the pieces have unequal sizes, and to balance them is the problem.")
    image("images/all-to-all.png", width=520)
    # Input
    rank0 = torch.tensor([0., 1., 2., 3.])      # @inspect rank0
    rank1 = torch.tensor([4., 5., 6., 7.])      # @inspect rank1
    rank2 = torch.tensor([8., 9., 10., 11.])    # @inspect rank2
    rank3 = torch.tensor([12., 13., 14., 15.])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0., 4., 8., 12.])   # @inspect rank0
    rank1 = torch.tensor([1., 5., 9., 13.])   # @inspect rank1
    rank2 = torch.tensor([2., 6., 10., 14.])  # @inspect rank2
    rank3 = torch.tensor([3., 7., 11., 15.])  # @inspect rank3

    text("How to remember the names:")
    text("- **Reduce**: many tensors become one, by a sum or another associative and commutative operation (an average is a sum, divided in the end).")
    text("- **Scatter** and **gather** are inverses: one takes apart, the other puts together.")
    text("- **All**: the destination is every rank, rather than one.")


def hardware() -> None:
    text("## Hardware")
    text("**At home**, and in most workstations: GPUs sit on the PCIe bus of one machine, and machines talk over Ethernet.")
    image("images/pcie-node.png", width=640)
    text("- PCIe 5.0 ×16 carries 63 GB/s each way. It connects a GPU to the CPU, and through it to another GPU. PCIe 7.0 ×16 will carry 242 GB/s each way: still less than NVLink does.")
    article_link("https://en.wikipedia.org/wiki/PCI_Express")
    text("- Gigabit Ethernet carries 0.125 GB/s each way ([Wikipedia](https://en.wikipedia.org/wiki/Gigabit_Ethernet)). On the way from a rank to the wire the data is copied again and again: from the GPU to the CPU's memory, into a buffer of the operating system's socket, through TCP to the network card.")

    text("**In the data centre**, the data goes around the CPU:")
    text("- **NVLink** joins the GPUs of a node through **NVSwitch** chips. A DGX B200 has 8 GPUs and 2 NVSwitch chips, 14.4 TB/s together in both directions ([DGX B200 user guide](https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html)). An H100's NVLink has half of a B200's: 0.45 TB/s each way, 0.9 TB/s in both directions together ([Hopper tuning guide](https://docs.nvidia.com/cuda/hopper-tuning-guide/)).")
    text("- **RDMA** (remote direct memory access): over InfiniBand, the network card reads and writes the GPU's memory itself. The data passes no CPU and is not copied on the way. A CPU thread still posts each transfer, NCCL's *proxy* ([Hu et al.](https://arxiv.org/abs/2507.04786)).")
    image("images/rank-to-wire.png", width=640)
    text("- Standard Ethernet has no RDMA. **RoCE** (RDMA over Converged Ethernet) brings it there, and gives up what InfiniBand does by itself: its links lose no packet, and RoCE needs an Ethernet that is configured to lose none ([Wikipedia](https://en.wikipedia.org/wiki/RDMA_over_Converged_Ethernet)). Meta built two clusters of 24 000 H100s for Llama 3, one with RoCE, one with InfiniBand ([Meta](https://engineering.fb.com/2024/03/12/data-center-engineering/building-metas-genai-infrastructure/)).")
    text("- **NVLink beyond the node**: a GB200 NVL72, or a [GB300 NVL72](https://www.nvidia.com/en-us/data-center/gb300-nvl72/), is a rack of 18 compute trays of 4 GPUs and 9 switch trays: 72 GPUs in one NVLink domain, 130 TB/s together in both directions ([NVIDIA](https://www.nvidia.com/en-us/data-center/gb200-nvl72/)). The fastest links now end at the rack. Above it, racks or nodes form pods, joined by InfiniBand or Ethernet.")

    text("**NCCL** (NVIDIA Collective Communications Library) turns collectives into packets on these links. It finds out how the machine is wired, chooses for that wiring and the size of the message how the data travels (around a ring, along a tree, through the switch), and launches GPU kernels that send, receive and add.")
    link(title="talk", url="https://www.nvidia.com/en-us/on-demand/session/gtcspring21-s31880/")


def torch_distributed() -> None:
    text("## torch.distributed")
    text("PyTorch's library for distributed programs:")
    link(title="documentation", url="https://pytorch.org/docs/stable/distributed.html")
    text("- A clean interface to the collectives: `dist.all_reduce`, `dist.reduce_scatter_single`, `dist.all_gather_single` and so on, and to point-to-point `dist.send` and `dist.recv`. Each returns when it is done, or, on a GPU, queued. With `async_op=True` it returns at once, with a handle to `wait` for, so that one can compute meanwhile; this lecture leaves that off.")
    text("- A backend for each kind of hardware: **NCCL** for GPUs, **gloo** for CPUs. The same program runs on both.")
    text("- Strategies ready for use, such as DDP and `FullyShardedDataParallel`.")
    text("Versions: this lecture runs with torch 2.8 or newer, where gloo averages ([pull 149781](https://github.com/pytorch/pytorch/pull/149781)). Before torch 2.13, `reduce_scatter_single` was `reduce_scatter_tensor`, and `all_gather_single` was `all_gather_into_tensor`.")

    text("`spawn` starts one process for each rank, and each runs the same function with its own `rank`. There, rank $r$ contributes the numbers 0, 1, 2, 3, each plus $r$. What will rank 2 hold after the all-reduce, and after the reduce-scatter?")
    spawn(collective_operations_main, world_size=4)


def collective_operations_main(rank: int, world_size: int) -> None:
    """Show on real ranks that all-reduce = reduce-scatter + all-gather."""
    setup(rank, world_size)  # @inspect rank world_size @stepover
    text("In `setup` the ranks meet, in a store at an address and a port that rank 0's machine serves: each writes there how to reach it. The data itself goes from rank to rank, over NCCL or gloo.")
    device = cuda_if_available(rank)  # @stepover

    # All-reduce, in place
    dist.barrier()  # wait for all ranks, so that the log is easier to read
    data = torch.tensor([0., 1., 2., 3.], device=device) + rank  # both input and output @inspect data
    print(f"Rank {rank} [before all-reduce]: {data}")
    dist.all_reduce(data, op=dist.ReduceOp.SUM)  # @clear data
    print(f"Rank {rank} [after all-reduce]: {data}")

    # Reduce-scatter
    dist.barrier()
    input = torch.arange(world_size, dtype=torch.float32, device=device) + rank  # (world_size) @inspect input
    output = torch.zeros(1, device=device)  # room for this rank's piece @inspect output.shape
    print(f"Rank {rank} [before reduce-scatter]: input = {input}, output = {output}")
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    print(f"Rank {rank} [after reduce-scatter]: input = {input}, output = {output}")

    # All-gather
    dist.barrier()
    input = output  # the result of the reduce-scatter @clear input @inspect input.shape
    output = torch.zeros(world_size, device=device)  # room for all pieces @inspect output.shape
    print(f"Rank {rank} [before all-gather]: input = {input}, output = {output}")
    dist.all_gather_single(output, input)
    print(f"Rank {rank} [after all-gather]: input = {input}, output = {output}")

    text("Rank 2 held 6, 10, 14, 18 like everyone, then its piece, 14. On four ranks the all-gather ends with the result of the all-reduce: **all-reduce = reduce-scatter + all-gather**.")
    cleanup()  # @stepover


def benchmarking() -> None:
    text("## Benchmarking")
    text("How many bytes must a rank send in an all-reduce of $S$ bytes over $n$ ranks? The naive way: all send to rank 0, which adds up and sends the sum back. Rank 0 receives $(n - 1)S$ and sends as much, while the other links are idle.")
    text("Better: a **ring**, in which each rank sends to the next. Cut the data into $n$ pieces. In $n - 1$ steps each rank passes on a piece, to which the next one adds its own: a reduce-scatter. In $n - 1$ more steps the finished pieces go around: an all-gather. So each rank sends $2(n - 1)/n \\cdot S$ bytes, on all links at once, and no algorithm in which ranks add up sends less ([Patarasuk, Yuan](https://doi.org/10.1016/j.jpdc.2008.09.002)).")
    image("images/ring-all-reduce.png", width=640)
    text("A message costs **latency**, whatever its size, plus its bytes over the bandwidth. The demo above, 16 bytes, was all latency. The benchmarks below are bound by bandwidth. The training demos lie between, with gradients of 4.2 MB for data parallelism and activations of 131 KB for tensor and pipeline parallelism. NVLink carries the latter in 0.15 µs and an InfiniBand port in 2.6 µs, while each hop costs NCCL 1 µs or more ([Hu et al.](https://arxiv.org/abs/2507.04786)).")
    text("A timing is easily wrong, and each line around the clock prevents one error. Without the **warm-up**, it counts setting up connections and loading kernels. Without `synchronize`, it ends when the GPU's work is queued, not done. `dist.barrier` returns when all ranks have called it. Without the **barrier before** the clock, it counts how late another rank arrives. Without the **barrier after**, a rank that is done early reports less than the slowest.")
    num_elements = benchmark_num_elements(world_size=4)  # 100 · 1024² on GPUs, 2²² on CPUs @stepover
    text("Guess first: how many GB/s on your machine? And which is faster, all-reduce or reduce-scatter?")
    spawn(all_reduce, world_size=4, num_elements=num_elements)
    spawn(reduce_scatter, world_size=4, num_elements=num_elements)

    text("What is printed is nccl-tests' **bus bandwidth**, in GB/s (10⁹ bytes), each way: it divides by the time the bytes that a rank must send at least, where ranks add up. So it does not depend on the world size, nor on ring or tree, and compares with the links' peak.")
    text("| GB/s, each way | all-reduce | reduce-scatter | peak of the link |\n|---|---|---|---|\n| 4 GPUs of one node, model not noted | 393 to 457 | 483 to 526 | 450 (H100), 900 (B200) |\n| 2 idle CPU cores, gloo | 0.9 | 0.3 | none: it is the machine's memory |")
    text("The GPUs took 1.4 to 1.6 ms and 2.4 to 2.6 ms, and 526 GB/s is more than an H100's NVLink carries each way: they were of Blackwell class. Reduce-scatter takes longer at the same order of bandwidth: its input is 4 times as large, as `num_elements` is what remains on a rank, and it travels once and not twice.")
    text("On the CPU, reduce-scatter is slower. gloo's is one all-reduce of the whole input, of which each rank keeps its chunk ([pull 118911](https://github.com/pytorch/pytorch/pull/118911)). That explains a factor of 2 of the 3 in the table; the rest is open.")
    link(title="how to reason about bandwidth", url="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#allreduce")
    link(title="sample benchmark", url="https://github.com/stas00/ml-engineering/blob/master/network/benchmarks/all_reduce_bench.py")


def all_reduce(rank: int, world_size: int, num_elements: int) -> None:
    """Measure the bus bandwidth of an all-reduce of `num_elements` float32 per rank."""
    setup(rank, world_size)  # @stepover
    tensor = torch.randn(num_elements, device=cuda_if_available(rank))  # @stepover

    # Warm up
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()  # wait for this GPU's kernels
    dist.barrier()            # wait for the other ranks

    # Measure
    num_calls = 5
    start_time = time.perf_counter()
    for _ in range(num_calls):
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()
    duration = (time.perf_counter() - start_time) / num_calls
    print(f"[all_reduce] Rank {rank}: all_reduce(world_size={world_size}, num_elements={num_elements}) took {render_duration(duration)}")  # @stepover

    num_bytes = tensor.numel() * tensor.element_size()
    sent_bytes = num_bytes * 2 * (world_size - 1) / world_size  # reduce-scatter and all-gather: each all pieces but one
    bandwidth = sent_bytes / duration
    print(f"[all_reduce] Rank {rank}: all_reduce measured bandwidth = {bandwidth / 1e9:.4g} GB/s")
    cleanup()  # @stepover


def reduce_scatter(rank: int, world_size: int, num_elements: int) -> None:
    """Measure the bus bandwidth of a reduce-scatter that leaves `num_elements` float32 on each rank."""
    setup(rank, world_size)  # @stepover
    input = torch.randn(world_size * num_elements, device=cuda_if_available(rank))  # a piece for each rank @stepover
    output = torch.empty(num_elements, device=cuda_if_available(rank))  # this rank's piece of the sum @stepover

    # Warm up
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()

    # Measure
    num_calls = 5
    start_time = time.perf_counter()
    for _ in range(num_calls):
        dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()
    duration = (time.perf_counter() - start_time) / num_calls
    print(f"[reduce_scatter] Rank {rank}: reduce_scatter(world_size={world_size}, num_elements={num_elements}) took {render_duration(duration)}")  # @stepover

    num_bytes = input.numel() * input.element_size()
    sent_bytes = num_bytes * (world_size - 1) / world_size  # all pieces but its own, once: nothing is gathered
    bandwidth = sent_bytes / duration
    print(f"[reduce_scatter] Rank {rank}: reduce_scatter measured bandwidth = {bandwidth / 1e9:.4g} GB/s")
    cleanup()  # @stepover


def data_parallelism() -> None:
    text("## Data parallelism")
    image("images/data-parallelism.png", width=640)
    text("Sharding strategy: **cut the batch**. Each rank has all the parameters and a slice of the data.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    text("Ranks 0 and 2 see different rows. After a step, will their losses agree? Their gradients? Their parameters?")
    spawn(data_parallelism_main, world_size=4, data=data, num_layers=4, num_steps=1)

    text("- Losses differ from rank to rank: each is computed on the rank's own slice, before the step.")
    text("- Gradients are averaged by the all-reduce, so they agree, and so do the parameters after the step. As all slices have the same size, that average is the gradient on the whole batch: the step is the one that a single GPU would take.")
    text("- Apart from taking its slice of the batch, one line, the all-reduce, makes the difference to training on one GPU. Without it, four models would drift apart. In practice a rank loads only its own data; here all get the batch and take their slice.")
    text("Each rank still stores everything. **ZeRO** (zero redundancy optimizer, [Rajbhandari et al.](https://arxiv.org/abs/1910.02054)) shards it in stages: 1 the optimizer state, 2 the gradients too, 3 the parameters too. PyTorch's `FullyShardedDataParallel` (FSDP) is the third: it all-gathers a layer's parameters before the layer, frees them after it, and reduce-scatters gradients in the backward pass. Next time.")


def generate_sample_data() -> torch.Tensor:
    """128 × 1024 float32 from a normal distribution, the same on every run."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(128, 1024, generator=generator)  # (batch, dim)


def data_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int, num_steps: int) -> None:
    """Train `num_steps` steps on this rank's slice of the batch."""
    setup(rank, world_size)  # @stepover

    # This rank's slice of the data
    batch_size, num_dim = data.shape  # @inspect batch_size num_dim
    local_batch_size = int_divide(batch_size, world_size)  # @inspect local_batch_size @stepover
    start_index = rank * local_batch_size  # @inspect start_index
    end_index = start_index + local_batch_size  # @inspect end_index
    data = data[start_index:end_index].to(cuda_if_available(rank))  # (local_batch, dim) @inspect data.shape @stepover

    # All the parameters, and an optimizer state for each
    params = [get_init_params(num_dim, num_dim, rank) for _ in range(num_layers)]  # @stepover
    optimizer = torch.optim.AdamW(params, lr=1e-3)

    for step in range(num_steps):
        # Forward pass
        x = data
        for param in params:
            x = F.gelu(x @ param)  # (local_batch, dim) @inspect x.shape param.shape
        loss = x.square().mean()  # of this slice; stands in for a real loss

        # Backward pass
        loss.backward()

        # The only communication: average each gradient over all ranks
        for param in params:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG)  # (dim, dim) @inspect param.grad.shape

        # Update
        optimizer.step()
        optimizer.zero_grad()
        print(f"[data_parallelism] Rank {rank}: step = {step}, loss = {loss.item()}, params = {[summarize_tensor(param) for param in params]}")  # @stepover

    cleanup()  # @stepover


def tensor_parallelism() -> None:
    text("## Tensor parallelism")
    image("images/tensor-parallelism.png", width=640)
    text("Sharding strategy: **cut the width**. Each rank has all the data and a slice of the columns of every layer's weight, so it computes that slice of the activations.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    text("What must a rank get from the others before it can go on with the next layer? And how wide is what rank 2 sends?")
    spawn(tensor_parallelism_main, world_size=4, data=data, num_layers=4)

    text("Every rank ends with the whole activations, and the same ones. In each layer the activations travel, and not the parameters: 256 columns from each rank. The next layer waits for them, so the links must be fast.")
    text("What stays artificial: `get_init_params` gives all ranks the same columns, so each rank rotates them by its own number, and one can tell on the page whose slice is whose. As the columns are scaled for a layer of 256 outputs, activations are larger than in the other demos.")


def tensor_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int) -> None:
    """Run the forward pass with this rank's columns of every weight."""
    setup(rank, world_size)  # @stepover

    # All the data
    data = data.to(cuda_if_available(rank))  # (batch, dim) @inspect data.shape @stepover
    batch_size, num_dim = data.shape  # @inspect batch_size num_dim
    local_num_dim = int_divide(num_dim, world_size)  # @inspect local_num_dim @stepover

    # This rank's columns of every layer, in an order of its own
    params = [get_init_params(num_dim, local_num_dim, rank).roll(rank, dims=1) for _ in range(num_layers)]  # @stepover

    # Forward pass
    x = data
    for param in params:
        x = F.gelu(x @ param)  # (batch, local_dim) @inspect x.shape param.shape
        activations = [torch.empty_like(x) for _ in range(world_size)]  # room for every rank's slice @stepover
        dist.all_gather(activations, x)  # batch_size * local_num_dim elements from each rank
        x = torch.cat(activations, dim=1)  # (batch, dim), the columns side by side @inspect x.shape

    print(f"[tensor_parallelism] Rank {rank}: forward pass produced activations {summarize_tensor(x)}")  # @stepover
    text("The backward pass is homework: what must be communicated there? Autograd does not see through `dist.all_gather`.")
    cleanup()  # @stepover


def pipeline_parallelism() -> None:
    text("## Pipeline parallelism")
    image("images/pipeline-parallelism.png", width=640)
    text("Sharding strategy: **cut the depth**. Each rank has some of the layers, and activations pass from rank to rank.")
    text("With the whole batch at once, all ranks but one would wait. So the batch is cut into **micro-batches**: while rank 1 works on the first, rank 0 works on the second.")
    image("images/pipeline-schedule.png", width=640)
    text("Still, the last rank waits at the start and the first one at the end: the **bubble**. With $p$ ranks and $m$ micro-batches it takes $(p - 1)/(m + p - 1)$ of the time: for 2 ranks 1/2 with one micro-batch, 1/5 with 4, 1/33 with 32.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    text("What does rank 1 do first? And how many lines will each rank print?")
    spawn(pipeline_parallelism_main, world_size=2, data=data, num_layers=4, num_micro_batches=4)

    text("Rank 1 waits for the first micro-batch. Rank 0 prints 4 lines, one for each micro-batch, and sends its activations, 32 rows, to rank 1. Rank 1, the last one, has the results and prints nothing. Only neighbours communicate, so stages may sit in different nodes.")
    text("With the backward pass: **GPipe** ([Huang et al.](https://arxiv.org/abs/1811.06965)) runs all micro-batches forward, then all backward, and stores the activations of $m$ on each rank. **1F1B**, one forward, one backward ([Narayanan et al.](https://arxiv.org/abs/2006.09503)), starts each backward pass as soon as it can. The bubble stays the same, and at most $p$ micro-batches are stored.")
    image("images/pipeline-1f1b.png", width=640)
    text("Not handled here: overlap of communication with computation. `send` and `recv` wait until they are done. Real pipelines start them early (`isend`, `irecv`), and give each rank several smaller stages to shrink the bubble.")


def pipeline_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int, num_micro_batches: int) -> None:
    """Run the forward pass of this rank's layers on one micro-batch after the other."""
    setup(rank, world_size)  # @stepover
    device = cuda_if_available(rank)  # @stepover

    # This rank's layers
    batch_size, num_dim = data.shape  # @inspect batch_size num_dim
    local_num_layers = int_divide(num_layers, world_size)  # @inspect local_num_layers @stepover
    local_params = [get_init_params(num_dim, num_dim, rank) for _ in range(local_num_layers)]  # @stepover

    # Rank 0 cuts the data into micro-batches, the others make room for what they will receive
    micro_batch_size = int_divide(batch_size, num_micro_batches)  # @inspect micro_batch_size @stepover
    if rank == 0:
        micro_batches = data.to(device).chunk(num_micro_batches, dim=0)
    else:
        micro_batches = [torch.empty(micro_batch_size, num_dim, device=device) for _ in range(num_micro_batches)]

    for x in micro_batches:
        if rank > 0:
            dist.recv(x, src=rank - 1)  # (micro_batch, dim), from the previous stage
        for param in local_params:
            x = F.gelu(x @ param)  # (micro_batch, dim) @inspect x.shape param.shape
        if rank < world_size - 1:
            print(f"[pipeline_parallelism] Rank {rank}: sending {summarize_tensor(x)} to rank {rank + 1}")  # @stepover
            dist.send(x, dst=rank + 1)  # (micro_batch, dim), to the next stage

    text("The backward pass is homework: gradients travel from the last rank to the first.")
    cleanup()  # @stepover


# --------------------------------------------------------------------------------------------------
# Helpers: how ranks start, meet and end, and what the programs share


def setup(rank: int, world_size: int) -> None:
    """Join the process group: with NCCL when this rank has a GPU of its own, else with gloo."""
    store = join_store(rank, world_size)  # where the ranks meet: an address and a port that rank 0's machine serves
    device = cuda_if_available(rank)
    gpu = device if device.type == "cuda" else None
    backend = "nccl" if gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=RANK_TIMEOUT, device_id=gpu)


def cleanup() -> None:
    """Leave the process group, together with all other ranks."""
    dist.barrier()
    dist.destroy_process_group()
    report_rank_done()


@untraced
def spawn(func: Callable[..., None], world_size: int, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Run `func(rank, world_size, *args, *kwargs.values())` on every rank, each in a process of its own."""
    args = (*args, *kwargs.values())
    if sys.gettrace() is not None:  # traced, line by line: rank 0 alone, in this process
        say_that_only_rank_0_runs()
        with DisableDistributed():
            func(0, world_size, *args)
    elif launched():  # torchrun has started the ranks, and this process is one of them
        run_launched_rank(func, world_size, args)
    else:
        # On CPUs, inside this block, mp.spawn forks the ranks from a process that has imported torch already.
        with watched_ranks(func, world_size) as world_size:  # fewer, where there are too few GPUs
            mp.spawn(func, args=(world_size, *args), nprocs=world_size, join=True)


@untraced
class DisableDistributed:
    """Inside it, every function of torch.distributed does nothing and returns None."""

    def __init__(self) -> None:
        self.originals: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        import_untraced("torch._dynamo")  # which needs the functions as they are
        functions = {name: value for name, value in vars(dist).items() if type(value) in (FunctionType, BuiltinFunctionType)}
        self.originals.append(functions)
        vars(dist).update(dict.fromkeys(functions, lambda *args, **kwargs: None))

    def __exit__(self, *exception: object) -> None:
        vars(dist).update(self.originals.pop())


def get_init_params(num_inputs: int, num_outputs: int, rank: int) -> nn.Parameter:
    """A weight of num_inputs × num_outputs on the rank's device, the same for every call of that shape."""
    torch.manual_seed(0)
    weight = torch.randn(num_inputs, num_outputs) / math.sqrt(num_outputs)
    return nn.Parameter(weight.to(cuda_if_available(rank)))


def int_divide(a: int, b: int) -> int:
    """a / b. Raises AssertionError if b does not divide a."""
    if a % b != 0:
        raise AssertionError(f"{a} is not divisible by {b}: choose sizes that divide evenly among ranks or micro-batches")
    return a // b


def summarize_tensor(tensor: torch.Tensor) -> str:
    """Shape and first element, such as 32x1024[-0.0279...]."""
    return "x".join(map(str, tensor.shape)) + f"[{round(tensor.flatten()[0].item(), 4)}...]"


def render_duration(seconds: float) -> str:
    """A duration with its unit: 12.34us below 1 ms, 12.34ms below 1 s, else 12.34s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f}us"
    if seconds < 1:
        return f"{seconds * 1e3:.2f}ms"
    return f"{seconds:.2f}s"


if __name__ == "__main__":
    run(main)
