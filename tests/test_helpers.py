"""The lecture's helpers against references of their own."""

import math
import re
import subprocess
import sys
import time
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ranks import QUICK, RankPool

import gpu_util
import lecture_07
import rank_util


@settings(QUICK, max_examples=50)
@given(quotient=st.integers(0, 1000), divisor=st.integers(1, 1000))
def test_int_divide_inverts_a_product(quotient: int, divisor: int) -> None:
    result = lecture_07.int_divide(quotient * divisor, divisor)
    assert result == quotient
    assert type(result) is int


@settings(QUICK, max_examples=50)
@given(a=st.integers(0, 1000), b=st.integers(1, 1000))
def test_int_divide_refuses_a_remainder_and_names_both_numbers(a: int, b: int) -> None:
    assume(a not in range(0, 1001, b))
    with pytest.raises(AssertionError, match=rf"\b{a}\b.*\b{b}\b"):
        lecture_07.int_divide(a, b)


def test_int_divide_refuses_a_remainder_also_where_assertions_are_switched_off() -> None:
    program = "import lecture_07; lecture_07.int_divide(128, 3)"
    root = Path(lecture_07.__file__).parent
    run = subprocess.run([sys.executable, "-O", "-c", program], cwd=root, capture_output=True, text=True)
    assert run.returncode == 1
    assert "AssertionError: 128 is not divisible by 3" in run.stderr


@settings(QUICK, max_examples=50)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    first=st.integers(-(2**20), 2**20).map(lambda numerator: numerator / 2**10),  # a float32, exactly
)
def test_summary_is_the_shape_and_the_first_element_to_four_places(shape: list[int], first: float) -> None:
    tensor = torch.full(shape, 7.0)
    tensor.view(-1)[0] = first
    found = re.fullmatch(r"([\dx]+)\[(\S+)\.\.\.\]", lecture_07.summarize_tensor(tensor))
    assert [int(length) for length in found[1].split("x")] == shape
    assert Decimal(found[2]) == Decimal(first).quantize(Decimal("0.0001"), ROUND_HALF_EVEN)


def test_summary_is_written_as_in_the_contract() -> None:
    tensor = torch.full((32, 1024), 5.0)
    tensor[0, 0] = -0.02786
    assert lecture_07.summarize_tensor(tensor) == "32x1024[-0.0279...]"


@settings(QUICK, max_examples=100)
@given(seconds=st.floats(1e-7, 1e4))
def test_duration_has_two_places_and_the_unit_that_fits(seconds: float) -> None:
    number, unit = re.fullmatch(r"(\d+\.\d\d)(us|ms|s)", lecture_07.render_duration(seconds)).groups()
    assert unit == ("us" if seconds < 0.001 else "ms" if seconds < 1 else "s")
    factor = {"us": 10**6, "ms": 1000, "s": 1}[unit]
    assert abs(Decimal(number) - Decimal(seconds) * factor) <= Decimal("0.0050001")


@pytest.mark.parametrize(
    ("seconds", "rendered"),
    [(12.34e-6, "12.34us"), (0.001, "1.00ms"), (0.01234, "12.34ms"), (1.0, "1.00s"), (12.34, "12.34s"), (0, "0.00us")],
)
def test_duration_is_written_as_in_the_contract(seconds: float, rendered: str) -> None:
    assert lecture_07.render_duration(seconds) == rendered


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("shape", [(4, 4), (6, 2), (1, 9)])
def test_weights_are_those_of_seed_0_scaled_by_the_number_of_outputs(shape: tuple[int, int], rank: int) -> None:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    for _ in range(2):
        weight = lecture_07.get_init_params(*shape, rank)
        assert isinstance(weight, torch.nn.Parameter) and weight.requires_grad and weight.is_leaf
        assert weight.dtype == torch.float32 and weight.device == gpu_util.cuda_if_available(rank)
        torch.testing.assert_close(weight.detach().cpu(), numbers * shape[1] ** -0.5)


def test_weights_lie_on_the_device_of_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {3: torch.device("meta")}
    monkeypatch.setattr(lecture_07, "cuda_if_available", devices.__getitem__)
    assert lecture_07.get_init_params(2, 2, 3).device.type == "meta"


def test_sample_data_is_normal_and_the_same_on_every_call() -> None:
    data = lecture_07.generate_sample_data()
    assert data.shape == (128, 1024) and data.dtype == torch.float32 and data.device.type == "cpu"
    torch.manual_seed(12345)
    assert torch.equal(data, lecture_07.generate_sample_data())
    # Of 131 072 draws, the share at or below x must follow the normal distribution; 0.01 is seven standard deviations.
    for x in np.linspace(-3, 3, 13):
        assert (data <= x).double().mean().item() == pytest.approx((1 + math.erf(x / math.sqrt(2))) / 2, abs=0.01)
    correlations = np.corrcoef(data.numpy()[:16])[~np.eye(16, dtype=bool)]
    assert np.abs(correlations).max() < 0.2, "rows are independent"


@pytest.mark.parametrize(
    ("device", "backend", "gpu"), [("cpu", "gloo", None), ("cuda:3", "nccl", torch.device("cuda:3"))]
)
def test_setup_joins_with_nccl_where_the_rank_has_a_gpu_and_else_with_gloo(
    monkeypatch: pytest.MonkeyPatch, device: str, backend: str, gpu: torch.device | None
) -> None:
    join, meet = Mock(), Mock(return_value="the store")
    monkeypatch.setattr(dist, "init_process_group", join)
    monkeypatch.setattr(lecture_07, "join_store", meet)
    monkeypatch.setattr(lecture_07, "cuda_if_available", {3: torch.device(device)}.__getitem__)
    lecture_07.setup(3, 4)
    meet.assert_called_once_with(3, 4)
    join.assert_called_once_with(
        backend, store="the store", rank=3, world_size=4, timeout=rank_util.RANK_TIMEOUT, device_id=gpu
    )


def leave(rank: int, world_size: int, seconds_late: float) -> dict:
    """`cleanup` as the lecture calls it, in the group that is there; the last rank leaves late."""
    noted = {}
    if rank == world_size - 1:
        time.sleep(seconds_late)
    noted["wants to leave"] = time.monotonic()
    order = Mock()
    with (
        patch.object(lecture_07, "report_rank_done", order.report),
        patch.object(dist, "destroy_process_group", order.destroy),
    ):
        lecture_07.cleanup()
    noted["left"], noted["order"] = time.monotonic(), [call[0] for call in order.method_calls]
    return noted


def test_cleanup_leaves_with_the_last_rank(pool: RankPool) -> None:
    ranks = pool.run(leave, 4, seconds_late=0.3)
    for noted in ranks:
        assert noted["order"] == ["destroy", "report"]
        assert noted["left"] >= max(each["wants to leave"] for each in ranks), "nobody leaves before all are done"
