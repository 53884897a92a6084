"""What the lecture costs, each ratio with what it is measured against in the same run.

python tests/benchmark.py          all of the below
python tests/benchmark.py run      the whole run on CPU, against six empty spawns of the same world sizes
python tests/benchmark.py memory   all processes of a run together, at the peak
python tests/benchmark.py trace    tracing, against importing the lecture
python tests/benchmark.py sizes    all-reduce bus bandwidth by size: which size is large enough?
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import lecture_07
import spawn_util

REPOSITORY = Path(__file__).resolve().parent.parent
LECTURE = [sys.executable, "lecture_07.py"]
WORLD_SIZES = (4, 4, 4, 4, 4, 2)
REPEATS = 3
CPU_ONLY = os.environ | {"CUDA_VISIBLE_DEVICES": ""}


def seconds(command: list[str]) -> float:
    """How long a command takes."""
    start = time.perf_counter()
    subprocess.run(command, cwd=REPOSITORY, env=CPU_ONLY, check=True, capture_output=True)
    return time.perf_counter() - start


def compare(name: str, command: list[str], reference_name: str, reference: list[str], limit: float) -> None:
    """Print the medians of two commands, run in turns, and their ratio."""
    pairs = [(seconds(reference), seconds(command)) for _ in range(REPEATS)]
    base, cost = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"{name}: {cost:.2f} s; {reference_name}: {base:.2f} s; ratio {cost / base:.2f} (at most {limit})")


def empty_program(rank: int, world_size: int) -> None:
    """A per-rank program that does nothing. Its process has imported the lecture, as this module does."""


def benchmark_run() -> None:
    """Compare the whole run with starting processes alone."""
    compare("whole run", LECTURE, "six empty spawns", [sys.executable, __file__, "empty_spawns"], 1.35)


def empty_spawns() -> None:
    """What a run costs whose ranks do nothing."""
    for world_size in WORLD_SIZES:
        mp.spawn(empty_program, args=(world_size,), nprocs=world_size, join=True)


def benchmark_memory() -> None:
    """Sum up the unique set sizes of all processes of a run, again and again, and print the largest sum."""
    run = psutil.Popen(LECTURE, cwd=REPOSITORY, env=CPU_ONLY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while run.poll() is None:
        total = 0
        for process in [run, *run.children(recursive=True)]:
            try:
                total += process.memory_full_info().uss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # ended meanwhile
        peak = max(peak, total)
        time.sleep(0.02)
    print(f"peak memory of all processes: {peak / 2**30:.2f} GiB (at most 1.5)")


def benchmark_trace() -> None:
    """Compare tracing with importing."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "edtrace.execute", "-m", "lecture_07", "-o", folder]
        compare("trace", command, "import lecture_07", [sys.executable, "-c", "import lecture_07"], 3)


def all_reduce_by_size(rank: int, world_size: int) -> None:
    """Print the median all-reduce bus bandwidth for each size, and the smallest within 20 % of the largest's."""
    lecture_07.setup(rank, world_size)
    bandwidths = {}
    for exponent in range(16, 25):
        tensor = torch.randn(2**exponent)
        durations = []
        for _ in range(12):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            dist.barrier()
            durations.append(time.perf_counter() - start)
        num_bytes = tensor.numel() * tensor.element_size()
        sent_bytes = num_bytes * 2 * (world_size - 1) / world_size
        bandwidths[exponent] = sent_bytes / statistics.median(durations[2:]) / 1e9
        if rank == 0:
            print(f"2^{exponent} float32 per rank: {bandwidths[exponent]:.3f} GB/s")
    if rank == 0:
        enough = min(exponent for exponent in bandwidths if bandwidths[exponent] >= 0.8 * bandwidths[24])
        print(f"smallest within 20 % of 2^24: 2^{enough}; the lecture takes {spawn_util.CPU_NUM_ELEMENTS} elements")
    lecture_07.cleanup()


def benchmark_sizes() -> None:
    """Measure which size says what a far larger one says."""
    lecture_07.spawn(all_reduce_by_size, world_size=4)


BENCHMARKS = {
    "run": benchmark_run,
    "memory": benchmark_memory,
    "trace": benchmark_trace,
    "sizes": benchmark_sizes,
    "empty_spawns": empty_spawns,
}

if __name__ == "__main__":
    for argument in sys.argv[1:] or ["run", "memory", "trace", "sizes"]:
        if argument not in BENCHMARKS:
            sys.exit(f"No benchmark {argument!r}: choose from {', '.join(BENCHMARKS)}")
        BENCHMARKS[argument]()
