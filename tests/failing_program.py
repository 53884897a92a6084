"""A program like the lecture whose rank 1 fails in the way that the variable FAILURE names."""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist

from lecture_07 import cleanup, setup, spawn
from lecture_util import run

FAILURES = {
    "raise": lambda: int("not a number"),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleeps": lambda: time.sleep(1000),
}


def program(rank: int, world_size: int) -> None:
    """All-reduce among ranks of which one fails."""
    setup(rank, world_size)
    dist.barrier()
    print(f"Rank {rank} is {os.getpid()}")
    if rank == 1:
        FAILURES[os.environ["FAILURE"]]()
    dist.all_reduce(torch.ones(4))
    cleanup()


def main() -> None:
    """Run the program on three ranks."""
    spawn(program, world_size=3)
    print("The run went on as if nothing had happened")


if __name__ == "__main__":
    run(main)
