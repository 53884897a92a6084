"""A run is planned by the wanted world size and the number of GPUs."""

import importlib.util
from types import ModuleType

import pytest
import torch
import torch.distributed as dist

import gpu_util
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


def loaded_again() -> ModuleType:
    """gpu_util as a program that imports it first gets it."""
    spec = importlib.util.spec_from_file_location("gpu_util_loaded_again", gpu_util.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", ["2.7.1+cu128", "2.0.0", "1.13.1"])
def test_a_torch_whose_gloo_does_not_average_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=r"needs torch 2\.8 or newer.*pip install -r requirements.txt") as refusal:
        loaded_again()
    assert f"this is torch {version}:" in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("version", ["2.8.0", "2.10.0+cpu", "2.13.0a0+git1234567", "3.0.0"])
def test_a_newer_torch_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    loaded_again()


def test_before_torch_2_13_the_single_tensor_collectives_go_by_their_former_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for new, former in [
        ("reduce_scatter_single", "reduce_scatter_tensor"),
        ("all_gather_single", "all_gather_into_tensor"),
    ]:
        monkeypatch.delattr(dist, new, raising=False)
        monkeypatch.setattr(dist, former, f"what {former} does", raising=False)
    loaded_again()
    assert dist.reduce_scatter_single == "what reduce_scatter_tensor does"
    assert dist.all_gather_single == "what all_gather_into_tensor does"
