"""The eight collectives: the lecture's tensors, its demo and torch.distributed do what the definitions say."""

import ast
import inspect
import re

import numpy as np
import pytest
import torch
import torch.distributed as dist
from collectives import COLLECTIVES, Buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import QUICK, ProgramRun, RankPool

import lecture_07

WORLD_SIZES = [1, 2, 4]
SOURCE = inspect.getsource(lecture_07.collective_operations)


def as_lists(buffers: Buffers) -> list[list[int] | None]:
    return [None if buffer is None else buffer.tolist() for buffer in buffers]


# The tensors that the lecture writes out


def assignments_by_section() -> dict[str, list[ast.Assign]]:
    """The assignments under each heading of the section, read from its source."""
    sections, assignments = {}, []
    for node in ast.parse(SOURCE).body[0].body:
        if isinstance(node, ast.Assign):
            assignments.append(node)
        elif heading := re.match(r"text\('### (.+)'\)", ast.unparse(node)):
            assignments = sections.setdefault(heading[1].lower(), [])
    return sections


SECTIONS = assignments_by_section()


def literal(node: ast.expr) -> np.ndarray | None:
    """The value of `None` or `torch.tensor([…])`, as numpy has it."""
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    assert isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.tensor", ast.unparse(node)
    elements = ast.literal_eval(node.args[0])
    assert all(type(element) is float for element in elements), "all tensors are float32"
    return np.array(elements, dtype=np.float32)


def written_blocks(name: str) -> tuple[Buffers, Buffers]:
    """The input and the output block that the lecture writes out for an operation."""
    values = [literal(node.value) for node in SECTIONS[name]]
    return values[:4], values[4:]


def test_every_operation_is_written_out_and_no_other() -> None:
    assert list(SECTIONS) == list(COLLECTIVES)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_blocks_are_labelled_and_show_each_rank_once(name: str) -> None:
    lines = SOURCE.splitlines()
    assert [ast.unparse(node.targets[0]) for node in SECTIONS[name]] == ["rank0", "rank1", "rank2", "rank3"] * 2
    for label, block in (("# Input", SECTIONS[name][:4]), ("# Output", SECTIONS[name][4:])):
        assert lines[block[0].lineno - 2].strip() == label
        assert [node.lineno for node in block] == list(range(block[0].lineno, block[0].lineno + 4))
        assert [lines[node.lineno - 1].split("# ")[1] for node in block] == [f"@inspect rank{r}" for r in range(4)]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_written_outputs_follow_from_the_written_inputs(name: str) -> None:
    inputs, outputs = written_blocks(name)
    assert as_lists(inputs) == as_lists(COLLECTIVES[name].example_inputs(4)), "the inputs are the figure's"
    assert as_lists(outputs) == as_lists(COLLECTIVES[name].function(inputs))


# torch.distributed


def run_collective(rank: int, world_size: int, name: str, inputs: Buffers) -> np.ndarray | None:
    """Execute a collective through torch.distributed; what this rank has then."""
    length = max(len(buffer) for buffer in inputs if buffer is not None)
    dtype = next(torch.from_numpy(buffer).dtype for buffer in inputs if buffer is not None)
    mine = torch.zeros(length, dtype=dtype) if inputs[rank] is None else torch.tensor(inputs[rank])
    piece, whole = torch.zeros(length // world_size, dtype=dtype), torch.zeros(length * world_size, dtype=dtype)
    root = rank == 0
    match name:
        case "broadcast":
            dist.broadcast(mine, src=0)
            return mine.numpy()
        case "scatter":
            dist.scatter(piece, list(mine.chunk(world_size)) if root else None, src=0)
            return piece.numpy()
        case "gather":
            pieces = list(whole.chunk(world_size))
            dist.gather(mine, pieces if root else None, dst=0)
            return torch.cat(pieces).numpy() if root else None
        case "reduce":
            dist.reduce(mine, dst=0)
            return mine.numpy() if root else None
        case "all-gather":
            dist.all_gather_single(whole, mine)
            return whole.numpy()
        case "reduce-scatter":
            dist.reduce_scatter_single(piece, mine)
            return piece.numpy()
        case "all-reduce":
            dist.all_reduce(mine)
            return mine.numpy()
        case "all-to-all":
            received = torch.zeros_like(mine)
            dist.all_to_all_single(received, mine)
            return received.numpy()
    raise ValueError(name)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_torch_turns_the_written_inputs_into_the_written_outputs(name: str, pool: RankPool) -> None:
    inputs, outputs = written_blocks(name)
    assert as_lists(pool.run(run_collective, 4, name, inputs)) == as_lists(outputs)


def integers(world_size: int, length: int, seed: int) -> list[np.ndarray]:
    """An array of integers for each rank, of any size that int64 holds."""
    limits = np.iinfo(np.int64)
    return list(np.random.default_rng(seed).integers(limits.min, limits.max, (world_size, length)))


@pytest.mark.parametrize("name", COLLECTIVES)
@settings(QUICK, max_examples=4)
@given(world_size=st.sampled_from(WORLD_SIZES), chunk=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_torch_agrees_with_the_definition(name: str, world_size: int, chunk: int, seed: int, pool: RankPool) -> None:
    inputs = integers(world_size, world_size * chunk, seed)
    if COLLECTIVES[name].example_inputs(2)[1] is None:
        inputs[1:] = [None] * (world_size - 1)  # only the root contributes
    assert as_lists(pool.run(run_collective, world_size, name, inputs)) == as_lists(COLLECTIVES[name].function(inputs))


def all_reduce_both_ways(rank: int, world_size: int, inputs: Buffers) -> tuple[bytes, bytes]:
    """The bits of an all-reduce, and of a reduce-scatter followed by an all-gather."""
    piece = run_collective(rank, world_size, "reduce-scatter", inputs)
    pieces = [piece if r == rank else None for r in range(world_size)]
    whole = run_collective(rank, world_size, "all-gather", pieces)
    return run_collective(rank, world_size, "all-reduce", inputs).tobytes(), whole.tobytes()


@settings(QUICK, max_examples=8)
@given(world_size=st.sampled_from(WORLD_SIZES), chunk=st.integers(1, 64), seed=st.integers(0, 2**32 - 1))
def test_all_reduce_is_reduce_scatter_and_all_gather_bit_for_bit(
    world_size: int, chunk: int, seed: int, pool: RankPool
) -> None:
    inputs = integers(world_size, world_size * chunk, seed)
    for at_once, in_two_steps in pool.run(all_reduce_both_ways, world_size, inputs):
        assert at_once == in_two_steps


# The lecture's demo


@pytest.fixture(scope="module", params=WORLD_SIZES)
def demo(request: pytest.FixtureRequest, pool: RankPool) -> list[ProgramRun]:
    """The demo on all ranks."""
    return pool.run_program("collective_operations_main", request.param)


def numbers(printed: str) -> list[list[float]]:
    """The tensors of floats in a printed line, written as torch writes them: 6. or 10.5, never 6."""
    found = [each.split(",") for each in re.findall(r"tensor\(\[(.+?)\]\)", printed)]
    assert all("." in number for tensor in found for number in tensor), printed
    return [[float(number) for number in tensor] for tensor in found]


def test_demo_prints_what_each_collective_makes_of_the_tensors_of_all_ranks(demo: list[ProgramRun]) -> None:
    world_size = len(demo)
    counting = [np.arange(4) + rank for rank in range(world_size)]
    by_rank = [np.arange(world_size) + rank for rank in range(world_size)]
    sums = COLLECTIVES["all-reduce"].function(counting)
    pieces = COLLECTIVES["reduce-scatter"].function(by_rank)
    joined = COLLECTIVES["all-gather"].function(pieces)
    for rank, run in enumerate(demo):
        stages = ["all-reduce", "reduce-scatter", "all-gather"]
        assert [re.match(r"Rank (\d+) \[(\w+ [a-z-]+)\]: ", line).groups() for line in run.printed] == [
            (str(rank), f"{moment} {stage}") for stage in stages for moment in ("before", "after")
        ]
        assert all(re.search(r"\]: input = tensor.+, output = tensor", line) for line in run.printed[2:])
        assert [numbers(line) for line in run.printed] == [
            [counting[rank].tolist()],
            [sums[rank].tolist()],
            [by_rank[rank].tolist(), [0]],
            [by_rank[rank].tolist(), pieces[rank].tolist()],
            [pieces[rank].tolist(), [0] * world_size],
            [pieces[rank].tolist(), joined[rank].tolist()],
        ]


def test_on_four_ranks_the_demo_ends_with_the_result_of_its_all_reduce(pool: RankPool) -> None:
    for run in pool.run_program("collective_operations_main", 4):
        assert numbers(run.printed[1])[0] == numbers(run.printed[-1])[1]


def test_demo_waits_for_all_ranks_before_it_prints_what_it_will_communicate(demo: list[ProgramRun]) -> None:
    for rank, run in enumerate(demo):
        collectives = ["all_reduce", "reduce_scatter_single", "all_gather_single"]
        steps = [step for collective in collectives for step in ("barrier", "print", collective, "print")]
        assert [event.name for event in run.events] == ["setup", *steps, "cleanup"]
        assert run.events[0].args == (rank, len(demo))
    for barrier in range(3):
        entered = max(run.calls("barrier")[barrier].start for run in demo)
        assert entered <= min(run.calls("barrier")[barrier].end for run in demo)
