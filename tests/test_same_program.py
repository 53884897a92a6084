"""The per-rank programs are the same wherever they run: in the trace, on real ranks, and on GPUs."""

import inspect
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from ranks import COMMUNICATION, RankPool, kind_of, lines_of, random_data, run_alone

import lecture_07

PROGRAMS = {
    "collective_operations_main": {},
    "all_reduce": {"num_elements": 6},
    "reduce_scatter": {"num_elements": 6},
    "data_parallelism_main": {"data": random_data(0, 8, 4).float(), "num_layers": 2, "num_steps": 2},
    "tensor_parallelism_main": {"data": random_data(0, 8, 4).float(), "num_layers": 2},
    "pipeline_parallelism_main": {"data": random_data(0, 8, 4).float(), "num_layers": 4, "num_micro_batches": 2},
}


def test_these_are_all_per_rank_programs() -> None:
    assert set(PROGRAMS) == {
        name for name, value in vars(lecture_07).items()
        if inspect.isfunction(value) and value.__module__ == "lecture_07"
        and "cleanup" in value.__code__.co_names
    }  # fmt: skip


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rank_0_executes_the_same_lines_with_the_same_shapes(name: str, world_size: int, pool: RankPool) -> None:
    real, *_ = pool.run_program(name, world_size, *PROGRAMS[name].values())
    program, traced = getattr(lecture_07, name), []
    with lines_of(program, traced):  # a tracer, under which `spawn` runs rank 0 alone
        lecture_07.spawn(program, world_size, **PROGRAMS[name])
    assert len(real.lines) > 10
    assert traced == real.lines


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_rank_computes_with_and_communicates_lies_on_its_own_device(name: str, rank: int) -> None:
    """Here the device is torch's "meta", whose tensors have no content and do not mix with any on the CPU."""
    with patch.object(torch.Tensor, "item", lambda tensor: 1.0):
        run = run_alone(rank, 2, name, *PROGRAMS[name].values(), device="meta")
    variables = dict(run.local_variables)
    if name == "pipeline_parallelism_main":
        del variables["data"]  # only its micro-batches move
    communicated = [event.args for event in run.calls(*COMMUNICATION)]
    for tensor in tensors_in([*variables.values(), *communicated]):
        assert tensor.device.type == "meta"


def tensors_in(values: list | tuple) -> Iterator[torch.Tensor]:
    """The tensors in nested lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, torch.Tensor):
            yield value


def test_kinds_tell_shapes_and_whole_numbers_apart() -> None:
    values = [torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3).int(), 1, 2, [1], 1.5]
    assert len(set(map(kind_of, values))) == len(values)
