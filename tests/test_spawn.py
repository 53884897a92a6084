"""`spawn` starts real processes, or, under a tracer, runs rank 0 here with communication switched off."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import lecture_07
import rank_util
import spawn_util
from lecture_07 import DisableDistributed, spawn

REPOSITORY = Path(__file__).resolve().parent.parent


def functions_of_dist() -> dict[str, object]:
    """Every function of torch.distributed, by name, without touching what warns when it is read."""
    return {name: value for name, value in vars(dist).items() if type(value) in (FunctionType, BuiltinFunctionType)}


def test_switched_off_every_function_does_nothing_and_returns_none() -> None:
    before = functions_of_dist()
    assert {"all_reduce", "barrier", "init_process_group", "is_initialized", "send"} <= set(before)
    with DisableDistributed():
        assert functions_of_dist().keys() == before.keys()
        for name in before:
            assert getattr(dist, name)(1, "anything", at=["all"]) is None
    after = functions_of_dist()
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before), "each is the original object again"


def test_switched_on_again_after_an_exception() -> None:
    before = functions_of_dist()
    with pytest.raises(KeyError, match="inside"), DisableDistributed():
        raise KeyError("inside")
    assert functions_of_dist() == before


def test_nested_contexts_switch_on_at_the_outermost_end() -> None:
    before = functions_of_dist()
    with DisableDistributed():
        with DisableDistributed():
            assert dist.is_available() is None
        assert dist.is_available() is None
    assert functions_of_dist() == before


def test_one_context_can_be_entered_again_inside_itself() -> None:
    before = functions_of_dist()
    context = DisableDistributed()
    with context, context:
        assert dist.is_available() is None
    assert functions_of_dist() == before


def test_switching_off_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with DisableDistributed():
            pass


def test_untraced_it_gives_torch_the_function_and_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(mp, "spawn", lambda *args, **kwargs: calls.append((args, kwargs)))
    spawn(lecture_07.all_reduce, 4, "first", num_elements=8, last=9)
    assert calls == [((lecture_07.all_reduce,), {"args": (4, "first", 8, 9), "nprocs": 4, "join": True})]


def test_with_fewer_gpus_it_starts_as_many_ranks_as_planned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    calls = []
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(mp, "spawn", lambda *args, **kwargs: calls.append((kwargs["args"][0], kwargs["nprocs"])))
    spawn_util.notify.cache_clear()
    spawn(lecture_07.all_reduce, 4, num_elements=8)
    spawn(lecture_07.all_reduce, 4, num_elements=8)
    assert calls == [(2, 2), (2, 2)]
    assert len(capsys.readouterr().err.splitlines()) == 1, "said once"


def test_the_environment_is_afterwards_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(mp, "spawn", lambda *args, **kwargs: seen.update(os.environ))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    before = dict(os.environ)
    spawn(lecture_07.all_reduce, 2, num_elements=8)
    assert dict(os.environ) == before
    assert seen["CUDA_VISIBLE_DEVICES"] == "", "with gloo, every rank computes on the CPU"
    assert int(seen[rank_util.STORE_PORT]) > 0


def test_traced_it_runs_rank_0_here_and_communicates_nothing() -> None:
    calls = []

    def program(rank: int, world_size: int, *args: object) -> None:
        calls.append((rank, world_size, args, dist.get_rank(), dist.all_reduce(torch.ones(1))))

    trace = sys.gettrace()

    def tracer(frame: FrameType, event: str, arg: Any) -> None:  # noqa: ANN401
        return None

    sys.settrace(tracer)
    try:
        spawn(program, 4, "first", second=2)
    finally:
        sys.settrace(trace)
    assert calls == [(0, 4, ("first", 2), None, None)]
    assert dist.is_available() is True


def test_another_tracer_than_edtrace_takes_the_same_path_and_is_told() -> None:
    program = "import sys; sys.settrace(lambda *_: None); import lecture_07; lecture_07.torch_distributed()"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    (message,) = run.stderr.splitlines()
    assert "only rank 0 runs" in message and "nothing is communicated" in message
    assert [line.split(" [")[0] for line in run.stdout.splitlines()] == ["Rank 0"] * 6


def test_a_rank_that_nobody_started_is_told_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"Rank 1 of 4 .* spawn\(...\) or torchrun"):
        lecture_07.setup(1, 4)


def test_without_cuda_synchronizing_does_nothing() -> None:
    if not torch.cuda.is_available():
        assert torch.cuda.synchronize() is None
