"""Devices: which one a rank computes on, and how many ranks fit on the GPUs that are there."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

OLDEST_TORCH = (2, 8)
"""gloo averages (`ReduceOp.AVG`) since this release: https://github.com/pytorch/pytorch/pull/149781"""

if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
    raise ImportError(
        f"The lecture needs torch {'.'.join(map(str, OLDEST_TORCH))} or newer, where gloo averages; "
        f"this is torch {torch.__version__}: pip install -r requirements.txt"
    )
if not hasattr(dist, "reduce_scatter_single"):  # releases before 2.13 know these two by their former names only
    dist.reduce_scatter_single = dist.reduce_scatter_tensor
    dist.all_gather_single = dist.all_gather_into_tensor


@dataclass(frozen=True)
class Launch:
    """What torchrun tells each process that it starts: https://docs.pytorch.org/docs/stable/elastic/run.html"""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def launched() -> Launch | None:
    """This process as a rank that a launcher such as torchrun has started, or None if nobody did.

    Raises ValueError if what the launcher tells are no numbers.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if any(name not in os.environ for name in (*names, "MASTER_ADDR", "MASTER_PORT")):
        return None
    try:
        return Launch(*(int(os.environ[name]) for name in names))
    except ValueError:
        told = ", ".join(f"{name}={os.environ[name]!r}" for name in names)
        raise ValueError(f"A launcher should set whole numbers, here are {told}: unset them, or use torchrun") from None


def cuda_if_available(index: int = 0) -> torch.device:
    """The device of rank `index`: `cuda:index` if this machine has that GPU, else `cpu`.

    Under a launcher, which may start ranks on many machines, the GPU is that of this process's local rank.
    """
    num_gpus = torch.cuda.device_count()
    if launch := launched():
        return torch.device(f"cuda:{launch.local_rank}" if launch.local_world_size <= num_gpus else "cpu")
    return torch.device(f"cuda:{index}" if index < num_gpus else "cpu")


@dataclass(frozen=True)
class RunPlan:
    """How many ranks run, with which backend, and what the user should know if that is not what was asked for."""

    backend: str
    world_size: int
    notice: str | None


def plan_run(world_size: int, num_gpus: int) -> RunPlan:
    """Plan a run of `world_size` ranks on a machine with `num_gpus` GPUs: NCCL wants one GPU for each rank."""
    if world_size < 1 or num_gpus < 0:
        raise ValueError(f"plan_run needs world_size >= 1 and num_gpus >= 0, got {world_size} and {num_gpus}")
    if num_gpus >= world_size:
        return RunPlan("nccl", world_size, None)
    if num_gpus >= 2:
        fewer = max(divisor for divisor in range(1, num_gpus + 1) if world_size % divisor == 0)
        if fewer >= 2:
            notice = f"{num_gpus} GPUs for {world_size} ranks: running {fewer} ranks on NCCL, one for each GPU."
        else:
            notice = f"{num_gpus} GPUs for {world_size} ranks, which no number of GPUs divides: running 1 rank on NCCL."
        return RunPlan("nccl", fewer, notice)
    found = "no GPU" if num_gpus == 0 else "one GPU, too few for NCCL"
    notice = f"Running on CPU with gloo ({found}): bandwidths are those of this machine's memory, not of GPU links."
    return RunPlan("gloo", world_size, notice)
