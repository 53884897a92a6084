"""What the lecture costs, each ratio with what it is measured against in the same run.

Ends with exit code 1, and names the figure, when one is above its limit: see LIMITS. They hold on an idle machine.

python tests/benchmark.py          all of the below
python tests/benchmark.py run      the whole run on CPU, against six empty spawns of the same world sizes
python tests/benchmark.py page     recording and tracing the run and building its page, against the same spawns
python tests/benchmark.py first    from the command to the first line of the log
python tests/benchmark.py memory   all processes of a run together, at the peak
python tests/benchmark.py trace    tracing, against importing the lecture
python tests/benchmark.py sizes    all-reduce bus bandwidth by size: which size is large enough?
"""

import os
import shutil
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

LIMITS = {
    "whole run / six empty spawns": 0.45,
    "page / six empty spawns": 0.9,
    "trace / import": 2.2,
    "first line of the log, in seconds": 3.0,
    "peak memory of all processes, in GiB": 1.0,
}

REPOSITORY = Path(__file__).resolve().parent.parent
LECTURE = [sys.executable, "lecture_07.py"]
WORLD_SIZES = (4, 4, 4, 4, 4, 2)
REPEATS = 3
EMPTY_SPAWNS = [sys.executable, __file__, "empty_spawns"]
CPU_ONLY = os.environ | {"CUDA_VISIBLE_DEVICES": ""}


def seconds(command: list[str], folder: Path = REPOSITORY) -> float:
    """How long a command takes."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=CPU_ONLY, check=True, capture_output=True)
    return time.perf_counter() - start


too_high: list[str] = []


def judge(name: str, figure: float) -> None:
    """Print a figure with its limit, and remember if it is above."""
    print(f"{name}: {figure:.2f} (at most {LIMITS[name]})")
    if figure > LIMITS[name]:
        too_high.append(f"{name}: {figure:.2f} is above {LIMITS[name]}")


def compare(name: str, command: list[str], reference: list[str], folder: Path = REPOSITORY) -> None:
    """Judge the ratio of the medians of two commands, run in turns."""
    pairs = [(seconds(reference, folder), seconds(command, folder)) for _ in range(REPEATS)]
    base, cost = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"{name}: {cost:.2f} s / {base:.2f} s")
    judge(name, cost / base)


def empty_program(rank: int, world_size: int) -> None:
    """A per-rank program that does nothing. Its process has imported the lecture, as this module does."""


def benchmark_run() -> None:
    """Compare the whole run with starting processes alone."""
    compare("whole run / six empty spawns", LECTURE, EMPTY_SPAWNS)


def benchmark_page() -> None:
    """Compare recording, tracing and building the page with starting processes alone."""
    with TemporaryDirectory() as folder:  # as it writes into var
        copy = Path(folder, "copy")
        shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        compare("page / six empty spawns", [sys.executable, "-m", "trace_page", "lecture_07"], EMPTY_SPAWNS, copy)


def benchmark_first() -> None:
    """Take the median time to the first line."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        with subprocess.Popen(LECTURE, cwd=REPOSITORY, env=CPU_ONLY, stdout=-1, stderr=subprocess.DEVNULL) as run:
            run.stdout.readline()
            times.append(time.perf_counter() - start)
            run.stdout.read()
    judge("first line of the log, in seconds", statistics.median(times))


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
    judge("peak memory of all processes, in GiB", peak / 2**30)


def benchmark_trace() -> None:
    """Compare tracing with importing."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "edtrace.execute", "-m", "lecture_07", "-o", folder]
        compare("trace / import", command, [sys.executable, "-c", "import lecture_07"])


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
    "page": benchmark_page,
    "first": benchmark_first,
    "memory": benchmark_memory,
    "trace": benchmark_trace,
    "sizes": benchmark_sizes,
    "empty_spawns": empty_spawns,
}

if __name__ == "__main__":
    for argument in sys.argv[1:] or ["run", "page", "first", "memory", "trace", "sizes"]:
        if argument not in BENCHMARKS:
            sys.exit(f"No benchmark {argument!r}: choose from {', '.join(BENCHMARKS)}")
        BENCHMARKS[argument]()
    if too_high:
        sys.exit("\n".join(too_high))
