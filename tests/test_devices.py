"""A run is planned by the wanted world size and the number of GPUs."""

import pytest
import torch

import spawn_util
from gpu_util import RunPlan, cuda_if_available, plan_run

FOUR_RANKS = [("gloo", 4)] * 2 + [("nccl", 2)] * 2 + [("nccl", 4)] * 6
SIX_RANKS = [("gloo", 6)] * 2 + [("nccl", 2)] + [("nccl", 3)] * 3 + [("nccl", 6)] * 4


@pytest.mark.parametrize(("world_size", "table"), [(4, FOUR_RANKS), (6, SIX_RANKS)])
@pytest.mark.parametrize("num_gpus", range(10))
def test_nccl_wants_a_gpu_for_each_rank(world_size: int, table: list, num_gpus: int) -> None:
    plan = plan_run(world_size, num_gpus)
    assert (plan.backend, plan.world_size) == table[num_gpus]
    as_wanted = plan.backend == "nccl" and plan.world_size == world_size
    assert (plan.notice is None) == as_wanted, "what is not as wanted is said, and nothing else"


@pytest.mark.parametrize("num_gpus", range(2, 10))
@pytest.mark.parametrize("world_size", range(1, 13))
def test_fewer_gpus_than_ranks_use_the_largest_divisor(world_size: int, num_gpus: int) -> None:
    plan = plan_run(world_size, num_gpus)
    fitting = [size for size in range(1, world_size + 1) if size <= num_gpus and world_size % size == 0]
    assert plan == RunPlan("nccl", max(fitting), plan.notice)


def test_a_notice_on_cpu_says_what_the_bandwidths_are() -> None:
    for num_gpus in (0, 1):
        notice = plan_run(4, num_gpus).notice
        assert "CPU" in notice and "gloo" in notice and "bandwidths" in notice
        assert "\n" not in notice


@pytest.mark.parametrize(("world_size", "num_gpus"), [(0, 1), (4, -1)])
def test_sizes_that_make_no_sense_are_named(world_size: int, num_gpus: int) -> None:
    with pytest.raises(ValueError, match=f"{world_size} and {num_gpus}"):
        plan_run(world_size, num_gpus)


def test_a_device_is_a_gpu_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda_if_available() == torch.device("cuda:0")
    assert cuda_if_available(1) == torch.device("cuda:1")
    assert cuda_if_available(2) == torch.device("cpu")


@pytest.mark.parametrize(("num_gpus", "expected"), [(0, 2**22), (1, 2**22), (2, 100 * 1024**2), (8, 100 * 1024**2)])
def test_a_benchmark_moves_much_on_gpus_and_little_on_cpus(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, expected: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    assert spawn_util.benchmark_num_elements(world_size=4) == expected


@pytest.mark.parametrize(("num_gpus", "device"), [(0, "cpu"), (1, "cpu"), (2, "cuda:1"), (4, "cuda:1")])
def test_a_launched_rank_takes_the_gpu_of_its_local_rank(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, device: str
) -> None:
    variables = {
        "RANK": 5,
        "WORLD_SIZE": 8,
        "LOCAL_RANK": 1,
        "LOCAL_WORLD_SIZE": 2,
        "MASTER_ADDR": "x",
        "MASTER_PORT": 1,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    assert cuda_if_available(5) == torch.device(device)
