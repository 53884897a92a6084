"""Lecture 7: parallelism across GPUs. This program is the lecture.

python lecture_07.py                        runs every demo on real processes, one for each rank
python -m edtrace.execute -m lecture_07     traces it line by line into var/traces/lecture_07.json
"""

import math
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from edtrace import link, note, text

from gpu_util import (
    DisableDistributed,  # noqa: F401
    benchmark_num_elements,
    cuda_if_available,  # noqa: F401
    prepare_rank,
    rank_device,
    report_rank_done,
    spawn,
)
from lecture_util import article_link, image, run

if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda device=None: None  # a CPU has nothing to wait for


def main() -> None:
    text("# Parallelism across GPUs")
    text("Last time: one GPU. This time: many of them, in one machine (a node) and in many.")
    image("images/gpu-node-overview.png", width=640)
    text("Arithmetic happens in the SMs (streaming multiprocessors). What it needs, parameters, activations, gradients and optimizer state, may lie far away: in the GPU's memory, in another GPU, in another machine.")
    text("So the craft is the same at every level: **arrange the work so that little data moves, and only over short distances**.")

    text("The hierarchy of memories and links, from fastest to slowest:")
    text("- **L1 / shared memory**, inside an SM: 256 KB for each SM of an H100 ([Hopper tuning guide](https://docs.nvidia.com/cuda/hopper-tuning-guide/))")
    text("- **HBM** (high-bandwidth memory), the memory of one GPU: 8 TB/s on a B200, reads and writes together ([Blackwell tuning guide](https://docs.nvidia.com/cuda/blackwell-tuning-guide/))")
    text("- **NVLink / NVSwitch**, between the GPUs of a node: 0.9 TB/s each way for a B200, or 1.8 TB/s in both directions together ([Blackwell tuning guide](https://docs.nvidia.com/cuda/blackwell-tuning-guide/))")
    text("- **InfiniBand / Ethernet**, between nodes: 400 Gb/s = 0.05 TB/s each way for one port, and a DGX B200 has a port for each of its GPUs ([DGX B200 user guide](https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html))")
    text("HBM is 9 times as fast as NVLink each way (4 times, counting both directions), and NVLink 18 times as fast as InfiniBand: 160 times from HBM to InfiniBand.")
    image("images/bandwidth-ladder.png", width=640)
    text("Inside one GPU, one **fuses and tiles** to spare HBM. Between GPUs, one **replicates and shards** (copies, and cuts into parts) to spare the links.")

    text("Two reasons to use several GPUs:")
    text("- It does not fit: parameters, gradients, optimizer state and activations are more than one GPU's memory holds. In float32 and with AdamW, the first three take 16 bytes for each parameter.")
    text("- It should finish sooner: more GPUs, more arithmetic at the same time.")

    # Running this file starts one process for each rank; they communicate and print the log.
    # Tracing it, which gives the page its steps, runs rank 0 alone, and nothing is communicated.
    # So a trace shows which lines run, and the log of a run what the ranks say.
    link(title="stdout for this lecture", url="var/traces/lecture_07_stdout.txt")
    note("Have the log open beside the page. What a rank holds after an exchange is known only from a run.")

    text("# Part 1: building blocks")
    collective_operations()  # what GPUs can tell each other
    hardware()               # over which links
    torch_distributed()      # with which library
    benchmarking()           # how fast

    text("# Part 2: training strategies")
    text("The model is a deep MLP (multilayer perceptron), bare of everything else: each layer is a matrix product and a gelu. Data parallelism trains it; tensor and pipeline parallelism run the forward pass, and leave the backward pass as homework.")
    text("One simplification to keep in mind: `get_init_params` seeds the random generator anew on every call, so **all layers, and all shards of a layer, start equal**. That way ranks agree without a message, and numbers in the log are easy to compare. Real code must not do that, as equal shards compute equal activations and learn the same thing. It seeds by layer and shard, or draws the parameters once and broadcasts or scatters them.")
    text("Now cut the training in three ways:")
    data_parallelism()       # along the batch
    tensor_parallelism()     # along the width
    pipeline_parallelism()   # along the depth

    text("How much does one rank send in these demos?")
    text("- Data parallelism: 25 MB in a step, the all-reduce of 4 gradients of 1024 × 1024.")
    text("- Tensor parallelism: 1.6 MB in a forward pass, in each of 4 layers activations of 128 × 256 to 3 ranks.")
    text("- Pipeline parallelism: 0.52 MB in a forward pass, 4 micro-batches with activations of 32 × 1024 to the next rank.")
    text("So it is not the amount that ties tensor parallelism to the fastest links, with a batch this small. Its messages come in every layer, and the next layer waits for them. They grow with the batch, too: beyond 2048 rows, the forward pass alone sends more than data parallelism does. A gradient has the size of its weight whatever the batch, and its all-reduce can run while the backward pass computes the next one.")

    text("# What is missing")
    text("- **Overlap** of communication with computation: every demo here computes, then communicates, then computes. Real systems do both at once, and much of their complexity is there.")
    text("- **General models**, with attention, embeddings and norms, where it takes more bookkeeping to say what is cut along which dimension.")
    text("- **Sequence and expert parallelism**, and **combinations**: tensor parallelism inside a node, pipeline stages across nodes, data parallelism around both.")
    text("- **The JAX / TPU way**: declare the model and how its arrays are sharded; a compiler inserts the collectives.")
    link(title="levanter", url="https://crfm.stanford.edu/2023/06/16/levanter-1_0-release.html")

    text("# Summary")
    text("- **Where to cut**: the batch (data), the width (tensor), the depth (pipeline), the length (sequence).")
    text("- Data parallelism: **DDP** replicates the parameters and all-reduces gradients; **FSDP / ZeRO** shards the parameters, and all-gathers them before use and reduce-scatters gradients.")
    text("- **Tensor parallelism** communicates in every layer, so it wants the fastest links. **Pipeline parallelism** tolerates slow ones and fights bubbles.")
    text("- For each value that is needed again, one may **recompute** it, **store** it, or **store it elsewhere and communicate**.")
    text("- Hardware grows, models grow faster, and the hierarchy stays.")


def collective_operations() -> None:
    text("## Collective operations")
    text("**Collective operations** are the vocabulary of distributed programs, and older than GPUs. Each names a pattern of communication in which a whole group of processes takes part.")
    article_link("https://en.wikipedia.org/wiki/Collective_operation")
    image("images/ranks.png", width=520)
    text("- **Rank**: the number of a process, here one for each GPU: 0, 1, 2, 3.")
    text("- **World size**: how many ranks there are: 4.")
    text("Why not write the sends and receives by hand (point-to-point)? A collective says *what* should hold afterwards. The library decides *how*: along a ring, along a tree, inside the switch. A collective is shorter, faster, and harder to deadlock.")
    text("In each example, `None` means that the rank contributes or receives nothing.")

    text("### Broadcast")
    text("Rank 0's tensor is copied to every rank. In training: hand the initial parameters to everybody.")
    image("images/broadcast.png", width=520)
    # Input
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = None                        # @inspect rank1
    rank2 = None                        # @inspect rank2
    rank3 = None                        # @inspect rank3
    # Output
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = torch.tensor([0, 1, 2, 3])  # @inspect rank1
    rank2 = torch.tensor([0, 1, 2, 3])  # @inspect rank2
    rank3 = torch.tensor([0, 1, 2, 3])  # @inspect rank3

    text("### Scatter")  # @clear rank0 rank1 rank2 rank3
    text("Rank 0's tensor is dealt out, an equal piece to each rank. In training: hand each rank its part of a batch that one rank has read.")
    image("images/scatter.png", width=520)
    # Input
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = None                        # @inspect rank1
    rank2 = None                        # @inspect rank2
    rank3 = None                        # @inspect rank3
    # Output
    rank0 = torch.tensor([0])  # @inspect rank0
    rank1 = torch.tensor([1])  # @inspect rank1
    rank2 = torch.tensor([2])  # @inspect rank2
    rank3 = torch.tensor([3])  # @inspect rank3

    text("### Gather")  # @clear rank0 rank1 rank2 rank3
    text("The inverse: the pieces of all ranks are put together on rank 0. In training: collect the parts of a result, say predictions, in one place to write them down.")
    image("images/gather.png", width=520)
    # Input
    rank0 = torch.tensor([0])  # @inspect rank0
    rank1 = torch.tensor([1])  # @inspect rank1
    rank2 = torch.tensor([2])  # @inspect rank2
    rank3 = torch.tensor([3])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = None                        # @inspect rank1
    rank2 = None                        # @inspect rank2
    rank3 = None                        # @inspect rank3

    text("### Reduce")  # @clear rank0 rank1 rank2 rank3
    text("The tensors of all ranks are combined, element by element, into one on rank 0. Here by a sum; product, minimum, maximum and average work as well. In training: sum up the loss or a metric for the log.")
    image("images/reduce.png", width=520)
    # Input
    rank0 = torch.tensor([0])  # @inspect rank0
    rank1 = torch.tensor([1])  # @inspect rank1
    rank2 = torch.tensor([2])  # @inspect rank2
    rank3 = torch.tensor([3])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6])  # @inspect rank0
    rank1 = None               # @inspect rank1
    rank2 = None               # @inspect rank2
    rank3 = None               # @inspect rank3

    text("### All-gather")  # @clear rank0 rank1 rank2 rank3
    text("Gather, but every rank gets the whole. In training: put sharded parameters together before a layer uses them (FSDP, fully sharded data parallelism), or sharded activations (tensor parallelism).")
    image("images/all-gather.png", width=520)
    # Input
    rank0 = torch.tensor([0])  # @inspect rank0
    rank1 = torch.tensor([1])  # @inspect rank1
    rank2 = torch.tensor([2])  # @inspect rank2
    rank3 = torch.tensor([3])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = torch.tensor([0, 1, 2, 3])  # @inspect rank1
    rank2 = torch.tensor([0, 1, 2, 3])  # @inspect rank2
    rank3 = torch.tensor([0, 1, 2, 3])  # @inspect rank3

    text("### Reduce-scatter")  # @clear rank0 rank1 rank2 rank3
    text("Reduce, then scatter: the sum over all ranks, of which each rank gets its piece. In training: sum up gradients where each rank needs only those of its own shard of the parameters (FSDP).")
    image("images/reduce-scatter.png", width=520)
    # Input
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = torch.tensor([1, 2, 3, 4])  # @inspect rank1
    rank2 = torch.tensor([2, 3, 4, 5])  # @inspect rank2
    rank3 = torch.tensor([3, 4, 5, 6])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6])   # @inspect rank0
    rank1 = torch.tensor([10])  # @inspect rank1
    rank2 = torch.tensor([14])  # @inspect rank2
    rank3 = torch.tensor([18])  # @inspect rank3

    text("### All-reduce")  # @clear rank0 rank1 rank2 rank3
    text("Reduce, but every rank gets the result. In training: average the gradients in data parallelism (DDP, distributed data parallelism).")
    image("images/all-reduce.png", width=520)
    # Input
    rank0 = torch.tensor([0, 1, 2, 3])  # @inspect rank0
    rank1 = torch.tensor([1, 2, 3, 4])  # @inspect rank1
    rank2 = torch.tensor([2, 3, 4, 5])  # @inspect rank2
    rank3 = torch.tensor([3, 4, 5, 6])  # @inspect rank3
    # Output
    rank0 = torch.tensor([6, 10, 14, 18])  # @inspect rank0
    rank1 = torch.tensor([6, 10, 14, 18])  # @inspect rank1
    rank2 = torch.tensor([6, 10, 14, 18])  # @inspect rank2
    rank3 = torch.tensor([6, 10, 14, 18])  # @inspect rank3

    text("### All-to-all")  # @clear rank0 rank1 rank2 rank3
    text("Each rank has a piece for each rank: write the inputs as rows of a matrix, and the outputs are its columns (a transpose). In training: send each token to the rank that holds its expert, and back (mixture of experts).")
    image("images/all-to-all.png", width=520)
    # Input
    rank0 = torch.tensor([0, 1, 2, 3])      # @inspect rank0
    rank1 = torch.tensor([4, 5, 6, 7])      # @inspect rank1
    rank2 = torch.tensor([8, 9, 10, 11])    # @inspect rank2
    rank3 = torch.tensor([12, 13, 14, 15])  # @inspect rank3
    # Output
    rank0 = torch.tensor([0, 4, 8, 12])   # @inspect rank0
    rank1 = torch.tensor([1, 5, 9, 13])   # @inspect rank1
    rank2 = torch.tensor([2, 6, 10, 14])  # @inspect rank2
    rank3 = torch.tensor([3, 7, 11, 15])  # @inspect rank3

    text("How to remember the names:")
    text("- **Reduce**: many tensors become one, by a sum or another associative and commutative operation (an average is a sum, divided in the end).")
    text("- **Scatter** and **gather** are inverses: one takes apart, the other puts together.")
    text("- **All**: the destination is every rank, rather than one.")


def hardware() -> None:
    text("## Hardware")
    text("**At home**, and in most workstations: GPUs sit on the PCIe bus of one machine, and machines talk over Ethernet.")
    image("images/pcie-node.png", width=640)
    text("- PCIe 5.0 ×16 carries 63 GB/s each way. It connects a GPU to the CPU, and through it to another GPU.")
    text("- PCIe 7.0 ×16 will carry 242 GB/s each way: still less than NVLink does.")
    article_link("https://en.wikipedia.org/wiki/PCI_Express")
    text("- Gigabit Ethernet carries 0.125 GB/s each way ([Wikipedia](https://en.wikipedia.org/wiki/Gigabit_Ethernet)), and each message passes through the operating system of both machines, which copies it on the way.")

    text("**In the data centre**, what connects GPUs goes around the CPU:")
    image("images/gpu-node-overview.png", width=640)
    text("- **NVLink** joins the GPUs of a node through **NVSwitch** chips. A DGX B200 has 8 GPUs and 2 NVSwitch chips, 14.4 TB/s together in both directions ([DGX B200 user guide](https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html)). An H100's NVLink has half of a B200's: 0.45 TB/s each way, 0.9 TB/s in both directions together ([Hopper tuning guide](https://docs.nvidia.com/cuda/hopper-tuning-guide/)).")
    text("- **RDMA** (remote direct memory access): over InfiniBand, the network card reads and writes the GPU's memory itself. No CPU and no copy by the operating system lies on the way.")
    text("- **NVLink beyond the node**: a GB200 NVL72 is a rack of 72 GPUs in one NVLink domain, 130 TB/s together in both directions ([NVIDIA](https://www.nvidia.com/en-us/data-center/gb200-nvl72/)). The fastest links now end at the rack, not at the node.")
    text("- **RoCE** (RDMA over Converged Ethernet) brings RDMA to Ethernet. Meta built two clusters of 24 000 H100s for Llama 3, one with RoCE, one with InfiniBand ([Meta](https://engineering.fb.com/2024/03/12/data-center-engineering/building-metas-genai-infrastructure/)).")

    text("**NCCL** (NVIDIA Collective Communications Library) turns collectives into packets on these links:")
    text("- It finds out how the machine is wired: NVLink, NVSwitch, PCIe, network cards.")
    text("- It chooses, for that wiring and the size of the message, how the data travels: around a ring, up and down a tree, or through the switch.")
    text("- It launches GPU kernels that send, receive and add.")
    link(title="talk", url="https://www.nvidia.com/en-us/on-demand/session/gtcspring21-s31880/")


def torch_distributed() -> None:
    text("## torch.distributed")
    text("PyTorch's library for distributed programs:")
    link(title="documentation", url="https://pytorch.org/docs/stable/distributed.html")
    text("- A clean interface to the collectives: `dist.all_reduce`, `dist.reduce_scatter_single`, `dist.all_gather_single` and so on, and to point-to-point `dist.send` and `dist.recv`.")
    text("- A backend for each kind of hardware: **NCCL** for GPUs, **gloo** for CPUs. The same program runs on both.")
    text("- Strategies ready for use, such as FSDP. This lecture builds them from the collectives instead.")
    text("Two collectives have changed names: `reduce_scatter_single` was `reduce_scatter_tensor`, and `all_gather_single` was `all_gather_into_tensor`. Torch 2.13 still knows the old names and warns; older releases know only those.")

    text("Now run the collectives. `spawn` starts one process for each rank, and each process runs the same function with its own `rank`.")
    spawn(collective_operations_main, world_size=4)


def benchmarking() -> None:
    text("## Benchmarking")
    text("How fast are collectives? Measure one all-reduce and one reduce-scatter of float32.")
    num_elements = benchmark_num_elements(world_size=4)  # 100 · 1024² on GPUs, 2²² on CPUs @stepover
    spawn(all_reduce, world_size=4, num_elements=num_elements)
    spawn(reduce_scatter, world_size=4, num_elements=num_elements)

    text("The bandwidth is nccl-tests' **bus bandwidth**: it counts what each rank must send at least (unless a switch adds up on the way), so one can compare it with the links' peak, whatever the number of ranks. GB are 10⁹ bytes, each way.")
    text("What to expect on GPUs: on 4 GPUs of one node (of a model that was not noted), these two programs took 1.4 to 1.6 ms (all-reduce, 393 to 457 GB/s) and 2.4 to 2.6 ms (reduce-scatter, 483 to 526 GB/s): the same order for both, as both keep the links busy. Reduce-scatter takes longer because its input is 4 times as large, as `num_elements` is what remains on a rank; it travels once and not twice, so each rank sends twice as much.")
    text("What to expect on CPUs: on 2 cores, about 0.9 GB/s for all-reduce and about 0.3 GB/s for reduce-scatter, as the \"links\" are the machine's own memory and all ranks share the cores. So **gloo's reduce-scatter is slower than its all-reduce**, where NCCL gives both about the same bandwidth. One reason: gloo builds it [on an all-reduce](https://github.com/pytorch/pytorch/pull/149869), which sends twice as much, and each rank throws most of the result away.")
    link(title="how to reason about bandwidth", url="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#allreduce")
    link(title="sample benchmark", url="https://github.com/stas00/ml-engineering/blob/master/network/benchmarks/all_reduce_bench.py")


def data_parallelism() -> None:
    text("## Data parallelism")
    image("images/data-parallelism.png", width=640)
    text("Sharding strategy: **cut the batch**. Each rank has all the parameters and a slice of the data.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    spawn(data_parallelism_main, world_size=4, data=data, num_layers=4, num_steps=1)

    text("What to notice in the log:")
    text("- Losses differ from rank to rank: each is computed on the rank's own slice, before the step.")
    text("- Gradients are averaged by the all-reduce, so they are the same on every rank, and so are the parameters after the step. As all slices have the same size, that average is the gradient on the whole batch: the step is the one that a single GPU would take.")
    text("- Apart from taking its slice of the batch, one line, the all-reduce, makes the difference to training on one GPU. Without it, four models would drift apart.")
    text("Each rank still stores all parameters, gradients and optimizer state. **FSDP** and **ZeRO** (zero redundancy optimizer) shard these as well: next time.")


def tensor_parallelism() -> None:
    text("## Tensor parallelism")
    image("images/tensor-parallelism.png", width=640)
    text("Sharding strategy: **cut the width**. Each rank has all the data and a slice of the columns of every layer's weight, so it computes that slice of the activations.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    spawn(tensor_parallelism_main, world_size=4, data=data, num_layers=4)

    text("What to notice in the log: every rank ends with the whole activations, and the same ones. All shards start equal here, and are scaled for their own number of columns. So the ranks' slices of the activations are equal too, and larger than in the other demos; with real weights they differ.")
    text("What to notice in the code: the activations, and not the parameters, are communicated, in every layer, and the next layer waits for them. So tensor parallelism stays where links are fastest, inside a node or an NVLink domain.")


def pipeline_parallelism() -> None:
    text("## Pipeline parallelism")
    image("images/pipeline-parallelism.png", width=640)
    text("Sharding strategy: **cut the depth**. Each rank has some of the layers, and activations pass from rank to rank.")
    text("With the whole batch at once, all ranks but one would wait. So the batch is cut into **micro-batches**: while rank 1 works on the first, rank 0 works on the second.")
    image("images/pipeline-schedule.png", width=640)
    text("Still, the last rank waits at the start and the first one at the end: the **bubble**. With $p$ ranks and $m$ micro-batches it takes $(p - 1)/(m + p - 1)$ of the time: 1/5 for 2 ranks and 4 micro-batches.")
    data = generate_sample_data()  # (batch, dim) @inspect data.shape @stepover
    spawn(pipeline_parallelism_main, world_size=2, data=data, num_layers=4, num_micro_batches=4)

    text("What to notice in the log: rank 0 prints one line for each micro-batch, and sends its activations, 32 rows, to rank 1. Rank 1, the last one, has the results and prints nothing. Only neighbours communicate, and they send little, so stages may sit in different nodes.")
    text("Not handled: overlap of communication with computation. After `send` and `recv`, the computation here waits until they are done. Real pipelines start them early (`isend`, `irecv`), alternate forward and backward passes to store fewer activations, and give each rank several smaller stages to shrink the bubble.")


# Per-rank programs: each process runs one of these.


def collective_operations_main(rank: int, world_size: int) -> None:
    """Show on real ranks that all-reduce = reduce-scatter + all-gather."""
    setup(rank, world_size)  # @inspect rank world_size @stepover
    device = rank_device(rank)

    # All-reduce, in place
    dist.barrier()  # wait for all ranks, so that the log is easier to read
    data = torch.tensor([0, 1, 2, 3], device=device) + rank  # both input and output @inspect data
    print(f"Rank {rank} [before all-reduce]: {data}")
    dist.all_reduce(data, op=dist.ReduceOp.SUM)  # @clear data
    print(f"Rank {rank} [after all-reduce]: {data}")

    # Reduce-scatter
    dist.barrier()
    input = torch.arange(world_size, device=device) + rank  # (world_size) @inspect input
    output = torch.zeros(1, dtype=input.dtype, device=device)  # room for this rank's piece @inspect output.shape
    print(f"Rank {rank} [before reduce-scatter]: input = {input}, output = {output}")
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    print(f"Rank {rank} [after reduce-scatter]: input = {input}, output = {output}")

    # All-gather
    dist.barrier()
    input = output  # the result of the reduce-scatter @clear input @inspect input.shape
    output = torch.zeros(world_size, dtype=input.dtype, device=device)  # room for all pieces @inspect output.shape
    print(f"Rank {rank} [before all-gather]: input = {input}, output = {output}")
    dist.all_gather_single(output, input)
    print(f"Rank {rank} [after all-gather]: input = {input}, output = {output}")

    text("In the log of four ranks, the last output equals the result of the all-reduce: **all-reduce = reduce-scatter + all-gather**.")
    cleanup()  # @stepover


def all_reduce(rank: int, world_size: int, num_elements: int) -> None:
    """Measure the bus bandwidth of an all-reduce of `num_elements` float32 per rank."""
    setup(rank, world_size)  # @stepover
    tensor = torch.randn(num_elements, device=rank_device(rank))  # @stepover

    # Warm up: the first call also sets up connections and loads kernels
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()  # wait for this GPU's kernels: calls return before they are done
    dist.barrier()            # wait for the other ranks

    # Measure
    start_time = time.perf_counter()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()  # the slowest rank counts
    duration = time.perf_counter() - start_time
    print(f"[all_reduce] Rank {rank}: all_reduce(world_size={world_size}, num_elements={num_elements}) took {render_duration(duration)}")  # @stepover

    text("An all-reduce is a reduce-scatter and an all-gather, and in each of them a rank sends all pieces of the data but one: twice $(n-1)/n$ of the data, $n$ the world size.")
    num_bytes = tensor.numel() * tensor.element_size()
    sent_bytes = num_bytes * 2 * (world_size - 1) / world_size
    bandwidth = sent_bytes / duration
    print(f"[all_reduce] Rank {rank}: all_reduce measured bandwidth = {bandwidth / 1e9:.4g} GB/s")
    cleanup()  # @stepover


def reduce_scatter(rank: int, world_size: int, num_elements: int) -> None:
    """Measure the bus bandwidth of a reduce-scatter that leaves `num_elements` float32 on each rank."""
    setup(rank, world_size)  # @stepover
    input = torch.randn(world_size * num_elements, device=rank_device(rank))  # a piece for each rank @stepover
    output = torch.empty(num_elements, device=rank_device(rank))  # this rank's piece of the sum @stepover

    # Warm up
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()

    # Measure
    start_time = time.perf_counter()
    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)
    torch.cuda.synchronize()
    dist.barrier()
    duration = time.perf_counter() - start_time
    print(f"[reduce_scatter] Rank {rank}: reduce_scatter(world_size={world_size}, num_elements={num_elements}) took {render_duration(duration)}")  # @stepover

    text("Each rank sends all pieces of its input but its own, once: $(n-1)/n$ of the input. There is no factor 2, as nothing is gathered.")
    num_bytes = input.numel() * input.element_size()
    sent_bytes = num_bytes * (world_size - 1) / world_size
    bandwidth = sent_bytes / duration
    print(f"[reduce_scatter] Rank {rank}: reduce_scatter measured bandwidth = {bandwidth / 1e9:.4g} GB/s")
    cleanup()  # @stepover


def data_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int, num_steps: int) -> None:
    """Train `num_steps` steps on this rank's slice of the batch."""
    setup(rank, world_size)  # @stepover

    # This rank's slice of the data
    batch_size = data.size(0)  # @inspect batch_size
    num_dim = data.size(1)  # @inspect num_dim
    local_batch_size = int_divide(batch_size, world_size)  # @inspect local_batch_size @stepover
    start_index = rank * local_batch_size  # @inspect start_index
    end_index = start_index + local_batch_size  # @inspect end_index
    data = data[start_index:end_index].to(rank_device(rank))  # (local_batch, dim) @inspect data.shape @stepover

    # All the parameters, and an optimizer state for each
    params = [get_init_params(num_dim, num_dim, rank) for _ in range(num_layers)]  # @stepover
    optimizer = torch.optim.AdamW(params, lr=1e-3)

    for step in range(num_steps):
        # Forward pass
        x = data
        for param in params:
            x = x @ param  # (local_batch, dim) @inspect x.shape param.shape
            x = F.gelu(x)
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


def tensor_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int) -> None:
    """Run the forward pass with this rank's columns of every weight."""
    setup(rank, world_size)  # @stepover

    # All the data
    data = data.to(rank_device(rank))  # (batch, dim) @inspect data.shape @stepover
    batch_size = data.size(0)  # @inspect batch_size
    num_dim = data.size(1)  # @inspect num_dim
    local_num_dim = int_divide(num_dim, world_size)  # @inspect local_num_dim @stepover

    # This rank's columns of every layer
    params = [get_init_params(num_dim, local_num_dim, rank) for _ in range(num_layers)]  # @stepover

    # Forward pass
    x = data
    for param in params:
        x = x @ param  # (batch, local_dim) @inspect x.shape param.shape
        x = F.gelu(x)
        activations = [torch.empty_like(x) for _ in range(world_size)]  # room for every rank's slice @stepover
        dist.all_gather(activations, x)  # batch_size * local_num_dim elements from each rank
        x = torch.cat(activations, dim=1)  # (batch, dim), the columns side by side @inspect x.shape

    print(f"[tensor_parallelism] Rank {rank}: forward pass produced activations {summarize_tensor(x)}")  # @stepover
    text("The backward pass is homework: what must be communicated there? Autograd does not see through `dist.all_gather`.")
    cleanup()  # @stepover


def pipeline_parallelism_main(rank: int, world_size: int, data: torch.Tensor, num_layers: int, num_micro_batches: int) -> None:
    """Run the forward pass of this rank's layers on one micro-batch after the other."""
    setup(rank, world_size)  # @stepover
    device = rank_device(rank)  # @stepover

    # This rank's layers
    batch_size = data.size(0)  # @inspect batch_size
    num_dim = data.size(1)  # @inspect num_dim
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
            x = x @ param  # (micro_batch, dim) @inspect x.shape param.shape
            x = F.gelu(x)
        if rank < world_size - 1:
            print(f"[pipeline_parallelism] Rank {rank}: sending {summarize_tensor(x)} to rank {rank + 1}")  # @stepover
            dist.send(x, dst=rank + 1)  # (micro_batch, dim), to the next stage

    text("The backward pass is homework: gradients travel from the last rank to the first.")
    cleanup()  # @stepover


# Helpers


def setup(rank: int, world_size: int) -> None:
    """Join the process group: with NCCL when this rank has its own GPU, else with gloo."""
    dist.init_process_group(**prepare_rank(rank, world_size))  # backend, rank, world size, and where to meet the others


def cleanup() -> None:
    """Leave the process group, together with all other ranks."""
    dist.barrier()
    dist.destroy_process_group()
    report_rank_done()


def generate_sample_data() -> torch.Tensor:
    """128 × 1024 float32 from a normal distribution, the same on every run."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(128, 1024, generator=generator)  # (batch, dim)


def get_init_params(num_inputs: int, num_outputs: int, rank: int) -> nn.Parameter:
    """A weight of num_inputs × num_outputs on the rank's device, the same for every call of that shape."""
    torch.manual_seed(0)
    weight = torch.randn(num_inputs, num_outputs) / math.sqrt(num_outputs)
    return nn.Parameter(weight.to(rank_device(rank)))


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
