"""A program like the lecture whose ranks tell in what process they are."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from lecture_07 import cleanup, setup, spawn
from lecture_util import run


def tell(rank: int, world_size: int, name: str) -> None:
    """Print who started this rank, how many threads that process has, and what this one has of its environment."""
    started_by, variables = psutil.Process(os.getppid()), os.environ
    by_server = "multiprocessing.forkserver" in " ".join(started_by.cmdline())
    no_gpu = "no-gpu" if variables["CUDA_VISIBLE_DEVICES"] == "" else "gpus"
    of_server = "PYTHONSAFEPATH" in variables
    setup(rank, world_size)
    print(rank, started_by.pid, by_server, started_by.num_threads(), variables[name], no_gpu, of_server, Path.cwd())
    cleanup()


def main() -> None:
    """Run twice on two ranks; before each, the environment changes, and before the second one, stdout."""
    os.environ["TOLD"] = "first"
    spawn(tell, 2, "TOLD")
    os.environ["TOLD"] = "second"
    os.chdir("/")
    os.dup2(os.open(os.environ["SECOND_LOG"], os.O_WRONLY | os.O_CREAT), 1)
    spawn(tell, 2, "TOLD")


if __name__ == "__main__":
    run(main)
