"""Joining a recording to a trace: each rank's step at a traced step, and where moved numbers came from."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trace_page.draw.rank_table import SUM, UNKNOWN, rank_table
from trace_page.read.alignment import NEVER, NOT_NOW, Turn, align, align_call
from trace_page.read.course import Course, join
from trace_page.read.merging import merge
from trace_page.read.trace import Trace
from trace_page.record.recording import Call, Communication, Rank, Recording, Step, TensorArgument, Value

pytest_plugins = ["page_fixtures"]

LOOPS = """def program(rank):
    for i in range(3):
        if odd(i, rank):
            work()
        for j in range(2):
            if odd(i + j, rank):
                more()
    end(
        rank
    )
"""


def call_of_lines(*ranks: list[int]) -> Call:
    """A call whose ranks executed these lines of LOOPS."""
    notes = [Rank([Step(line, 10 if line == 8 else line) for line in lines], []) for lines in ranks]
    return Call("program", "program.py", 1, len(ranks), None, notes)


def executed(choose: random.Random) -> Iterator[tuple[int, tuple]]:
    """The lines that LOOPS executes when its conditions are drawn at random, each with the turns of its loops."""
    yield 1, ()
    for i in range(3):
        yield 2, (i,)
        yield 3, (i,)
        if choose.random() < 0.5:
            yield 4, (i,)
        for j in range(2):
            yield 5, (i, j)
            yield 6, (i, j)
            if choose.random() < 0.5:
                yield 7, (i, j)
        yield 5, (i, 2)
    yield 2, (3,)
    yield 8, ()


@pytest.mark.parametrize("seed", range(10))
def test_a_step_belongs_to_the_same_line_in_the_same_turn_of_the_loops(seed: int) -> None:
    ranks = [list(executed(random.Random(100 * seed + rank))) for rank in range(3)]
    call = call_of_lines(*[[line for line, _ in steps] for steps in ranks])
    rows = align_call(call, [line for line, _ in ranks[0]], LOOPS)
    for (line, turns), row in zip(ranks[0], rows, strict=True):
        for steps, turn in zip(ranks, row, strict=True):
            if (line, turns) in steps:
                assert turn.first == steps.index((line, turns))
            else:
                assert turn.first == (NOT_NOW if line in [line for line, _ in steps] else NEVER)


@pytest.mark.parametrize("seed", range(10))
def test_every_step_of_every_rank_belongs_to_one_traced_step(seed: int) -> None:
    ranks = [[line for line, _ in executed(random.Random(100 * seed + rank))] for rank in range(3)]
    rows = align_call(call_of_lines(*ranks), ranks[0], LOOPS)
    for rank, lines in enumerate(ranks):
        shown = [step for row in rows if row[rank].first >= 0 for step in range(row[rank].first, row[rank].last + 1)]
        assert shown == list(range(len(lines)))


def test_a_line_that_the_trace_leaves_out_is_caught_up() -> None:
    ran = [1, 2, 3, 5, 6, 5, 6, 5, 2, 3, 4, 5, 6, 5, 6, 5, 2, 8]
    traced = [1, 2, 3, 5, 6, 5, 2, 3, 4, 5, 6, 5, 6, 5, 2, 8]  # one turn of the inner loop fewer
    rows = align_call(call_of_lines(ran, ran), traced, LOOPS)
    assert [ran[row[0].first] for row in rows] == traced
    assert rows[-1] == [Turn(17, 17), Turn(17, 17)]
    assert rows[8][1] == Turn(10, 10)


def test_the_lines_of_one_statement_are_one_step() -> None:
    rows = align_call(call_of_lines([1, 8]), [1, 8, 9, 8], LOOPS)
    assert [row[0] for row in rows] == [Turn(0, 0), Turn(1, 1), Turn(1, 1), Turn(1, 1)]


def test_a_line_that_no_real_rank_reached_belongs_to_none() -> None:
    rows = align_call(call_of_lines([1, 2, 8], [1, 2, 8]), [1, 2, 4, 8], LOOPS)
    assert rows[2] == [Turn(NEVER, 1), Turn(NEVER, 1)] and rows[3] == [Turn(2, 2), Turn(2, 2)]


# Where numbers came from


def tensor(*values: float) -> Value:
    return {"type": "torch.Tensor", "shape": [len(values)], "dtype": "float32", "device": "cpu", "values": [*values]}


def listed(*items: Value) -> Value:
    return {"type": "list", "length": len(items), "items": list(items)}


def origins(operation: str, before: list[Value], after: list[Value], **facts: object) -> list:
    """What the page says of each rank's output of an operation from `before` to `after`."""
    ranks = []
    for given, received in zip(before, after, strict=True):
        tensors = [TensorArgument("sent", "input", given)] if given is not None else []
        tensors += [TensorArgument("got", "output", tensor(0), received)] if received is not None else []
        ranks.append(Rank([Step(2, 2, communications=[Communication(operation, tensors, **facts)])], []))
    call = Call("program", "program.py", 1, len(ranks), None, ranks)
    recording = Recording("program", {}, {}, [call], [])
    (move,) = rank_table(Course(Trace({"program.py": LOOPS}, {"program.py": frozenset()}, ())), recording)["moves"]
    return [row[3][0][2] if row[3] else None for row in move["ranks"]]


@pytest.mark.parametrize(
    "operation, before, after, facts, expected",
    [
        ("all_gather_single", [tensor(1), tensor(2)], [tensor(1, 2)] * 2, {}, [[0, 1], [0, 1]]),
        ("all_gather", [tensor(1), tensor(2)], [listed(tensor(1), tensor(2))] * 2, {}, [[0, 1], [0, 1]]),
        ("gather", [tensor(1), tensor(2)], [listed(tensor(1), tensor(2)), None], {"root": 0}, [[0, 1], None]),
        ("broadcast", [tensor(1, 2), tensor(9, 9)], [tensor(1, 2)] * 2, {"root": 0}, [0, 0]),
        ("scatter", [listed(tensor(1), tensor(2)), None], [tensor(1), tensor(2)], {"root": 0}, [0, 0]),
        ("all_to_all_single", [tensor(1, 2), tensor(3, 4)], [tensor(1, 3), tensor(2, 4)], {}, [[0, 1], [0, 1]]),
        (
            "all_to_all",
            [listed(tensor(1), tensor(2)), listed(tensor(3), tensor(4))],
            [listed(tensor(1), tensor(3)), listed(tensor(2), tensor(4))],
            {},
            [[0, 1], [0, 1]],
        ),
        ("reduce_scatter_single", [tensor(1, 2), tensor(3, 4)], [tensor(4), tensor(6)], {}, [SUM, SUM]),
        ("reduce", [tensor(1), tensor(3)], [tensor(4), tensor(3)], {"root": 0}, [SUM, UNKNOWN]),
    ],
)
def test_each_number_has_the_rank_that_the_operations_definition_gives(
    operation: str, before: list, after: list, facts: dict, expected: list
) -> None:
    assert origins(operation, before, after, **facts) == expected


def test_what_was_not_sent_is_said_to_come_from_nobody() -> None:
    sent, other = [tensor(1), tensor(2)], tensor(1, 3)
    assert origins("all_gather_single", sent, [other, other]) == [UNKNOWN, UNKNOWN]
    assert origins("broadcast", [tensor(1), tensor(2)], [tensor(3), tensor(3)], root=0) == [UNKNOWN, UNKNOWN]


# Values


def table_of(*variables: dict[str, Value]) -> dict:
    """The page's table for a call in which each rank holds these variables."""
    ranks = [Rank([Step(2, 2, changed=changed)], []) for changed in variables]
    call = Call("program", "program.py", 1, len(ranks), None, ranks)
    trace = Trace({"program.py": LOOPS}, {"program.py": frozenset()}, ())
    return rank_table(Course(trace), Recording("program", {}, {}, [call], []))


def test_equal_tensors_on_the_ranks_own_gpus_are_one_value() -> None:
    table = table_of(*[{"x": tensor(1, 2) | {"device": f"cuda:{rank}"}} for rank in range(2)])
    assert [rank["x"] for rank in table["calls"][0]["ranks"]] == [[[0], [0]]] * 2
    assert table["values"] == [{"t": "torch.Tensor", "d": "float32", "s": [2], "v": "cuda", "c": [1, 2]}]


@pytest.mark.parametrize(
    "value, shown",
    [
        (2**60, {"t": "int", "c": str(2**60)}),
        ({"type": "float", "value": "nan"}, {"t": "float", "c": "nan"}),
        ({"type": "str", "length": 999, "first": "abc"}, {"t": "str", "c": "abc", "n": 999}),
        ({"type": "dict", "length": 0, "items": []}, {"t": "dict", "c": {}}),
        ({"type": "dict", "length": 1, "items": [["a", True]]}, {"t": "dict", "c": {"a": {"t": "bool", "c": True}}}),
        ({"type": "list", "length": 9, "items": [None]}, {"t": "list", "c": [{"t": "NoneType", "c": None}], "n": 9}),
        ({"type": "a.B"}, {"t": "a.B", "c": None, "r": "B", "o": 1}),
        ({"type": "a.B", "error": "ValueError: no"}, {"t": "a.B", "c": None, "r": "ValueError: no"}),
    ],
)
def test_a_value_keeps_what_the_recording_has_of_it(value: Value, shown: dict) -> None:
    assert table_of({"x": value})["values"] == [shown]


def test_code_is_no_value() -> None:
    assert table_of({"torch": {"type": "module"}, "f": {"type": "function", "repr": "<f>"}, "x": 1})["calls"] == [
        {"ranks": [{"x": [[0], [0]]}], "names": ["x"]}
    ]


# A program on real ranks


def test_a_program_started_twice_is_joined_call_by_call(exchange: Trace, recording: Recording) -> None:
    joined = align(exchange, recording)
    calls = [index for index, _ in joined.values()]
    assert sorted(set(calls)) == [0, 1, 2] and calls == sorted(calls)
    inside = [n for n, step in enumerate(exchange.steps) if step.here.function in ("exchange", "alone")]
    assert list(joined) == inside
    for number, (index, turns) in joined.items():
        for rank, turn in zip(recording.calls[index].ranks, turns, strict=True):
            assert turn.first < 0 or rank.steps[turn.first].line == exchange.steps[number].here.line


def test_a_recording_of_other_calls_leaves_the_trace_as_it_is(exchange: Trace, recording: Recording) -> None:
    (*_, last) = recording.calls
    only = Recording(recording.module, recording.files, recording.environment, [last], [])
    assert {exchange.steps[number].here.function for number in align(exchange, only)} == {"alone"}


def test_building_the_page_reads_no_torch(lesson: Path) -> None:

    code = "import sys, trace_page.__main__ as m; m.main(['exchange', '--no-record']); sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    assert subprocess.run([sys.executable, "-c", code], cwd=lesson, env=environment).returncode == 0


# The steps of all ranks in one order

PIPELINE = """def program(rank):
    start()
    for turn in range(3):
        if rank > 0:
            recv(turn)
        work()
        if rank < 2:
            send(turn)
    end()
"""


def stage(rank: int, operations: tuple[str, str] = ("send", "recv")) -> Rank:
    """What one of three stages executes of PIPELINE."""
    send, receive = operations
    steps = [Step(1, 1), Step(2, 2)]
    for _ in range(3):
        steps += [Step(3, 3), Step(4, 4)]
        if rank > 0:
            steps.append(Step(5, 5, communications=[Communication(receive, [], peer=rank - 1)]))
        steps += [Step(6, 6), Step(7, 7)]
        if rank < 2:
            steps.append(Step(8, 8, communications=[Communication(send, [], peer=rank + 1)]))
    return Rank([*steps, Step(3, 3), Step(9, 9)], [])


def call_of(*ranks: Rank) -> Call:
    return Call("program", "program.py", 1, len(ranks), None, [*ranks])


def assert_each_rank_keeps_its_order(call: Call, source: str) -> None:
    """Every step of every rank is there once, in that rank's order, and the last step shows where a rank is."""
    merged = merge(call, source)
    for rank, notes in enumerate(call.ranks):
        turns = [(step.line, step.turns[rank]) for step in merged]
        own = [(line, turn.first) for line, turn in turns if turn.first >= 0]
        assert own == [(step.line, index) for index, step in enumerate(notes.steps)]
        last = -1
        for line, turn in turns:
            last = turn.first if turn.first >= 0 else last
            assert turn.last == last
            assert turn.first != NEVER or line not in [step.line for step in notes.steps]


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_all_ranks_is_that_of_each(seed: int) -> None:
    ranks = [[line for line, _ in executed(random.Random(100 * seed + rank))] for rank in range(3)]
    call = call_of_lines(*ranks)
    assert_each_rank_keeps_its_order(call, LOOPS)
    # Lines outside branches are executed by all ranks in the same turns: nothing may separate them.
    alone = [step.line for step in merge(call, LOOPS) if not all(turn.first >= 0 for turn in step.turns)]
    assert set(alone) <= {4, 7}


@pytest.mark.parametrize("operations", [("send", "recv"), ("isend", "irecv")])
def test_a_send_comes_before_its_receive(operations: tuple[str, str]) -> None:
    call = call_of(*[stage(rank, operations) for rank in range(3)])
    assert_each_rank_keeps_its_order(call, PIPELINE)
    sent, received = [0, 0], [0, 0]
    for step in merge(call, PIPELINE):
        for rank, turn in enumerate(step.turns):
            if turn.first >= 0 and step.line == 5:
                received[rank - 1] += 1
                assert received[rank - 1] <= sent[rank - 1]
        for rank, turn in enumerate(step.turns):
            if turn.first >= 0 and step.line == 8:
                sent[rank] += 1
    assert received == sent == [3, 3]


def test_a_stage_works_on_its_second_micro_batch_while_the_next_has_the_first() -> None:
    call = call_of(*[stage(rank) for rank in range(3)])

    def turn_of(rank: int, last: int) -> int:
        return sum(step.line == 6 for step in call.ranks[rank].steps[: last + 1])

    assert (2, 1) in {
        (turn_of(0, step.turns[0].last), turn_of(1, step.turns[1].last)) for step in merge(call, PIPELINE)
    }
    assert [turn.first >= 0 for turn in merge(call, PIPELINE)[-1].turns] == [True] * 3, "they end together"


def started(operation: str, peer: int) -> Communication:
    return Communication(operation, [], peer=peer, asynchronous=True)


def test_receives_that_are_posted_before_the_sends_are_one_step() -> None:
    notes = ((2, "irecv"), (3, "isend"))
    posted = [[Step(n, n, communications=[started(operation, peer)]) for n, operation in notes] for peer in (1, 0)]
    source = "def program():\n    receive()\n    send()\n"
    call = call_of(*[Rank([Step(1, 1), *steps], []) for steps in posted])
    assert [step.line for step in merge(call, source)] == [1, 2, 3]


def test_ranks_that_exchange_in_one_statement_do_so_in_one_step() -> None:
    both = [
        Rank([Step(1, 1), Step(2, 2, communications=[started("isend", peer), started("irecv", peer)])], [])
        for peer in (1, 0)
    ]
    assert len(merge(call_of(*both), "def program():\n    exchange()\n")) == 2


def test_the_course_has_the_lines_that_rank_0_does_not_execute(exchange: Trace, recording: Recording) -> None:
    course = join(exchange, recording)
    receive = next(n for n, line in enumerate(exchange.files["exchange.py"].split("\n"), 1) if "dist.recv(" in line)
    (number,) = [n for n, step in enumerate(course.trace.steps) if step.here.line == receive]
    _, (other, own) = course.recorded[number]
    assert other.first == NEVER and recording.calls[0].ranks[1].steps[own.first].line == receive
    for traced, shown in enumerate(course.traced):
        assert course.trace.steps[shown].here.function == exchange.steps[traced].here.function
