"""The benchmarks time one transfer, all of it and nothing else, and print nccl-tests' bus bandwidth of it."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import QUICK, HandClock, ProgramRun, RankPool, run_alone

NUM_ELEMENTS = 24
COLLECTIVE = {"all_reduce": "all_reduce", "reduce_scatter": "reduce_scatter_single"}
"""Each benchmark, and the collective that it measures."""
NUM_WARM_UPS, NUM_CALLS = 2, 5
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

benchmarks = pytest.mark.parametrize("benchmark", COLLECTIVE)


def bus_bandwidth(benchmark: str, world_size: int, num_elements: int, seconds: float) -> float:
    """In GB/s, from https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.

    The algorithm bandwidth is size / time. The size is what nccl-tests prints as such: the bytes of a rank's buffer for
    an all-reduce, of a rank's whole input for a reduce-scatter. The factors turn it into what the links carry.
    """
    bytes_per_float32 = 4
    if benchmark == "all_reduce":
        size, factor = bytes_per_float32 * num_elements, 2 * (world_size - 1) / world_size
    else:
        size, factor = bytes_per_float32 * num_elements * world_size, (world_size - 1) / world_size
    return size / seconds * factor / 1e9


def printed(run: ProgramRun, benchmark: str, rank: int, world_size: int) -> tuple[float, float, float]:
    """The printed duration in seconds, the half unit by which it may be rounded, and the printed bandwidth in GB/s."""
    start = f"[{benchmark}] Rank {rank}: {benchmark}"
    took, measured = run.printed
    duration = re.fullmatch(r"(.+) took ([\d.]+)(us|ms|s)", took)
    bandwidth = re.fullmatch(r"(.+) measured bandwidth = (\S+) GB/s", measured)
    assert duration[1] == f"{start}(world_size={world_size}, num_elements={NUM_ELEMENTS})"
    assert bandwidth[1] == start
    unit = SECONDS[duration[3]]
    return float(duration[2]) * unit, 0.005 * unit, float(bandwidth[2])


def run_with_transfer_of(seconds: float, benchmark: str, rank: int, world_size: int) -> ProgramRun:
    """Run the benchmark where each timed transfer takes exactly so long, and everything else takes no time."""
    delays = {(rank, COLLECTIVE[benchmark], NUM_WARM_UPS + call): seconds for call in range(NUM_CALLS)}
    return run_alone(rank, world_size, benchmark, NUM_ELEMENTS, delays=delays, clock=HandClock())


@benchmarks
@pytest.mark.parametrize("world_size", range(2, 65))
def test_bandwidth_is_nccl_tests_bus_bandwidth(benchmark: str, world_size: int) -> None:
    run = run_with_transfer_of(0.004, benchmark, world_size - 1, world_size)
    _, _, bandwidth = printed(run, benchmark, world_size - 1, world_size)
    assert bandwidth == pytest.approx(bus_bandwidth(benchmark, world_size, NUM_ELEMENTS, 0.004), rel=1e-3)


@benchmarks
@settings(QUICK, max_examples=20)
@given(seconds=st.floats(1e-6, 100))
def test_printed_duration_is_that_of_the_transfer(benchmark: str, seconds: float) -> None:
    duration, rounding, bandwidth = printed(run_with_transfer_of(seconds, benchmark, 0, 4), benchmark, 0, 4)
    assert duration == pytest.approx(seconds, abs=1.01 * rounding)
    assert bandwidth == pytest.approx(bus_bandwidth(benchmark, 4, NUM_ELEMENTS, seconds), rel=1e-3), "4 digits"


@benchmarks
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_on_real_ranks_the_bandwidth_follows_from_the_printed_duration(
    benchmark: str, world_size: int, pool: RankPool
) -> None:
    for rank, run in enumerate(pool.run_program(benchmark, world_size, NUM_ELEMENTS)):
        duration, rounding, bandwidth = printed(run, benchmark, rank, world_size)
        least = bus_bandwidth(benchmark, world_size, NUM_ELEMENTS, duration + rounding)
        most = bus_bandwidth(benchmark, world_size, NUM_ELEMENTS, duration - rounding)
        assert least * 0.999 <= bandwidth <= most * 1.001


@benchmarks
def test_transfers_are_done_to_warm_up_and_then_between_two_readings_of_the_clock(benchmark: str) -> None:
    run = run_with_transfer_of(1, benchmark, 3, 4)
    transfer, wait = COLLECTIVE[benchmark], ["synchronize", "barrier"]
    order = [*[transfer] * NUM_WARM_UPS, *wait, "perf_counter", *[transfer] * NUM_CALLS, *wait, "perf_counter"]
    assert [event.name for event in run.events] == ["setup", *order, "print", "print", "cleanup"]
    assert run.events[0].args == (3, 4)


@benchmarks
def test_the_buffers_are_as_large_as_stated(benchmark: str, pool: RankPool) -> None:
    for run in pool.run_program(benchmark, 4, NUM_ELEMENTS):
        for event in run.calls(COLLECTIVE[benchmark]):
            assert all(buffer.dtype == torch.float32 for buffer in event.args)
            assert event.kwargs == {"op": "RedOpType.SUM"}
            sizes = [buffer.numel() for buffer in event.args]
            assert sizes == ([NUM_ELEMENTS] if benchmark == "all_reduce" else [NUM_ELEMENTS, 4 * NUM_ELEMENTS])
            assert event.args[-1].unique().numel() > NUM_ELEMENTS / 2, "random numbers, not zeros"


@benchmarks
def test_the_timed_transfer_is_done_on_real_numbers(benchmark: str, pool: RankPool) -> None:
    runs = pool.run_program(benchmark, 4, NUM_ELEMENTS)
    for index in range(NUM_WARM_UPS + NUM_CALLS):
        before = [run.calls(COLLECTIVE[benchmark])[index].args[-1] for run in runs]
        after = [run.calls(COLLECTIVE[benchmark])[index].args_after[0] for run in runs]
        total = torch.stack(before).double().sum(dim=0)
        expected = [total] * 4 if benchmark == "all_reduce" else total.chunk(4)
        torch.testing.assert_close([each.double() for each in after], list(expected), rtol=0, atol=1e-4)


# One rank is late by LATE seconds. All processes share one clock, so what happened before what is no matter of luck.

LATE = 0.3


@benchmarks
@pytest.mark.parametrize("late", ["the transfer", "synchronize"])
def test_every_rank_counts_what_any_rank_waits_for(benchmark: str, late: str, pool: RankPool) -> None:
    """The first: rank 1 is slow to finish its transfer. The second: its GPU is not done when the call returns."""
    function, timed = (COLLECTIVE[benchmark], NUM_WARM_UPS) if late == "the transfer" else (late, 1)
    runs = pool.run_program(benchmark, 4, NUM_ELEMENTS, delays={(1, function, timed): LATE})
    for rank, run in enumerate(runs):
        duration, rounding, _ = printed(run, benchmark, rank, 4)
        # Less than LATE can only be what a rank needs to leave the barrier after rank 1 did.
        later = run.calls("perf_counter")[0].end - _start(runs[1])
        assert NUM_CALLS * (duration + rounding) >= LATE - max(0, later)
        assert max(each.calls(function)[timed].end for each in runs) <= run.calls("perf_counter")[1].start


@benchmarks
@pytest.mark.parametrize("late", ["the transfer", "synchronize"])
def test_no_rank_counts_how_long_another_one_warms_up(benchmark: str, late: str, pool: RankPool) -> None:
    function = COLLECTIVE[benchmark] if late == "the transfer" else late
    runs = pool.run_program(benchmark, 4, NUM_ELEMENTS, delays={(1, function, 0): LATE})
    assert max(run.calls(function)[0].end for run in runs) <= min(map(_start, runs))


def _start(run: ProgramRun) -> float:
    """When the rank read its clock first."""
    return run.calls("perf_counter")[0].start


def test_a_bandwidth_below_a_megabyte_a_second_keeps_its_digits() -> None:
    run = run_with_transfer_of(40, "all_reduce", 0, 2)
    assert run.printed[1].endswith(" = 2.4e-09 GB/s"), "96 bytes in 40 s"
