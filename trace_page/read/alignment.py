"""Joins a trace to a recording by line: which recorded step of each rank a traced step belongs to.

The trace is one process with communication switched off; the recording has the real ranks. Both executed the same
lines, so a traced step belongs to the step of each rank that executes the same statement in the same turn of the loops
around it. What a rank executes besides, in branches of its own, belongs to the traced step before it.
"""

import ast
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from ..record.recording import Call, Recording
from .trace import Trace

NEVER, NOT_NOW = -1, -2


class Turn(NamedTuple):
    """A rank's part of a traced step: its recorded steps `first` to `last`.

    `first` is NEVER for a rank that executes the line nowhere, NOT_NOW for one that does not in this turn of its loops;
    `last` is then the last step that it has executed.
    """

    first: int
    last: int


def align(trace: Trace, recording: Recording) -> dict[int, tuple[int, list[Turn]]]:
    """For each traced step of a recorded program: the index of the recorded call, and each rank's turn."""
    result = {}
    for index, numbers in invocations(trace, recording):
        call = recording.calls[index]
        lines = [trace.steps[number].here.line for number in numbers]
        for number, turns in zip(numbers, align_call(call, lines, trace.files[call.path]), strict=True):
            result[number] = (index, turns)
    return result


def invocations(trace: Trace, recording: Recording) -> Iterator[tuple[int, list[int]]]:
    """The recorded calls that the trace has too, by index, each with the traced steps of the program itself."""
    waiting = list(enumerate(recording.calls))
    found: list[tuple[int, list[int]]] = []
    prefix, entry = None, 0
    numbers: list[int] | None = None
    for number, step in enumerate(trace.steps):
        here, above = step.here, [(frame.path, frame.line) for frame in step.stack[:-1]]
        if above == prefix and here.line != entry:
            if numbers is not None:
                numbers.append(number)
            continue
        for place, (index, call) in enumerate(waiting):
            caller = (call.caller.path, call.caller.line) if call.caller else None
            if (call.function, call.path) == (here.function, here.path) and (caller is None or caller in above):
                prefix, entry, numbers = above, call.ranks[0].steps[0].line, [number]
                found.append((index, numbers))
                del waiting[place]
                break
        else:
            if above == prefix:
                numbers = None  # the program once more, and this time it was not recorded
    return iter(found)


def align_call(call: Call, lines: Sequence[int], source: str) -> list[list[Turn]]:
    """For each of the traced `lines` of a program, each rank's turn; `source` is the program's file."""
    end = source.count("\n") + 2
    statements = {
        line: step.line
        for rank in call.ranks
        for step in rank.steps
        for line in range(step.line, min(step.last_line + 1, end))
    }
    starts = [statements.get(line, line) for line in lines]
    # One statement may be several traced steps, one for each of its lines.
    groups = [index for index, start in enumerate(starts) if not index or start != starts[index - 1]]
    loops = loops_around(source)
    traced = [starts[index] for index in groups]
    keys = list(loop_keys(traced, loops))
    executed = [[step.line for step in rank.steps] for rank in call.ranks]
    executed_keys = [list(loop_keys(ran, loops)) for ran in executed]
    # The trace leaves out a line that follows itself, so its own count of turns may fall behind.
    if traced != executed[0]:
        for block in SequenceMatcher(None, traced, executed[0], autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                keys[block.a + offset] = executed_keys[0][block.b + offset]
    columns = [_turns(keys, own, set(ran)) for own, ran in zip(executed_keys, executed, strict=True)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    ends = [*groups[1:], len(lines)]
    return [row for row, start, end in zip(rows, groups, ends, strict=True) for _ in range(start, end)]


def _turns(keys: list[tuple], executed: list[tuple], lines: set[int]) -> Iterator[Turn]:
    at = {key: index for index, key in enumerate(executed)}
    shown = {at[key] for key in keys if key in at}
    last = -1
    for key in keys:
        first = at.get(key)
        if first is None:
            yield Turn(NOT_NOW if key[0] in lines else NEVER, last)
            continue
        last = first
        while last + 1 < len(executed) and last + 1 not in shown:
            last += 1
        yield Turn(first, last)


def loops_around(source: str) -> dict[int, tuple[int, ...]]:
    """For each line inside loops, the lines of their headers, from the outermost to the innermost."""
    found: dict[int, tuple[int, ...]] = {}
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            for line in range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1):
                if line != node.lineno:
                    found[line] = (*found.get(line, ()), node.lineno)
    return found


def loop_keys(lines: Sequence[int], loops: dict[int, tuple[int, ...]]) -> Iterator[tuple]:
    """For each executed line: the line, the turns of the loops around it, and how often it came before in that turn."""
    entered: dict[int, int] = {}
    before: dict[tuple, int] = {}
    inside: dict[int, set[int]] = {}
    for around in loops.values():
        for depth, header in enumerate(around):
            inside.setdefault(header, set()).update(around[depth + 1 :])
    for line in lines:
        around = loops.get(line, ())
        if line in inside:
            entered[line] = entered.get(line, 0) + 1
            entered.update(dict.fromkeys(inside[line], 0))
        turns = (line, *(entered.get(header, 0) for header in around))
        before[turns] = before.get(turns, 0) + 1
        yield (*turns, before[turns])
