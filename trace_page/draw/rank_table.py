"""Joins a recording to a trace: what the page's script needs to show every rank at every traced step of its program.

The trace is one process with communication switched off; the recording has the real ranks. Both executed the same
lines, so a traced step belongs to the step of each rank that executes the same statement in the same turn of the loops
around it. What a rank executes besides, in branches of its own, belongs to the traced step before it.
"""

import ast
import re
from collections.abc import Iterator, Sequence, Set
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ..read.trace import Json, Trace
from ..record.recording import Call, Communication, Rank, Recording, Step, Value
from .steps import dumps, json_number

NEVER, NOT_NOW = -1, -2
SUM, UNKNOWN = -1, -2
"""Where an element came from, other than from a rank: it is a sum over ranks, or that is not known."""

FIRST = 3
"""Elements shown of a tensor that is not whole."""

POINT_TO_POINT = {"send": "recv", "isend": "irecv", "recv": "send", "irecv": "isend"}
UNSHOWN = ("module", "function", "builtin_function_or_method", "type")
"""Types of variables that are code, not values."""

UNFILLED = re.compile(r"\b(new_)?empty(_like)?\(")
"""A call that makes a tensor whose contents are arbitrary."""


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
    for index, numbers in _invocations(trace, recording):
        call = recording.calls[index]
        lines = [trace.steps[number].here.line for number in numbers]
        for number, turns in zip(numbers, align_call(call, lines, trace.files[call.path]), strict=True):
            result[number] = (index, turns)
    return result


def _invocations(trace: Trace, recording: Recording) -> Iterator[tuple[int, list[int]]]:
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
    loops = _loops(source)
    traced = [starts[index] for index in groups]
    keys = list(_keys(traced, loops))
    executed = [[step.line for step in rank.steps] for rank in call.ranks]
    executed_keys = [list(_keys(ran, loops)) for ran in executed]
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


def _loops(source: str) -> dict[int, tuple[int, ...]]:
    """For each line inside loops, the lines of their headers, from the outermost to the innermost."""
    found: dict[int, tuple[int, ...]] = {}
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            for line in range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1):
                if line != node.lineno:
                    found[line] = (*found.get(line, ()), node.lineno)
    return found


def _keys(lines: Sequence[int], loops: dict[int, tuple[int, ...]]) -> Iterator[tuple]:
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


# For the page


def rank_table(trace: Trace, recording: Recording) -> dict[str, Json]:
    """The table for ranks.js.

    `steps`: traced step → [call, [first, last of each rank's turn, …], [index into moves, …], {rank: lines that it
    executes besides, which the trace has not; or, of a rank that does not execute this line, the line that it executed
    last}]. `calls`: per recorded call its `ranks`, for each the variables as name → [steps at which it changed, indices
    into values; -1: deleted], and the variables' `names` in order of appearance. `moves`: what a communication moved,
    see `_Moves`. `values`: values by short keys, see `_Values.compact`.
    """
    values = _Values()
    calls, moves, moves_at = [], [], []
    for call in recording.calls:
        source = trace.files.get(call.path, "").split("\n")
        ranks = [_variables(rank, source, values) for rank in call.ranks]
        calls.append({"ranks": ranks, "names": _in_order_of_appearance(ranks)})
        found = _Moves(call, values, len(moves))
        moves += found.moves
        moves_at.append(found.at)
    steps = {}
    for number, (index, turns) in align(trace, recording).items():
        moved = {
            move
            for rank, turn in enumerate(turns)
            for step in range(turn.first, turn.last + 1)
            if turn.first >= 0
            for move in moves_at[index].get((rank, step), [])
        }
        ranks = recording.calls[index].ranks
        besides: dict[int, list[int]] = {}
        for rank, (first, last) in enumerate(turns):
            if 0 <= first < last:
                besides[rank] = sorted({step.line for step in ranks[rank].steps[first + 1 : last + 1]})
            elif first < 0 <= last:
                besides[rank] = [ranks[rank].steps[last].line]
        steps[number] = [index, [bound for turn in turns for bound in turn], sorted(moved), besides]
    return {"steps": steps, "calls": calls, "moves": moves, "values": values.table}


def _in_order_of_appearance(ranks: list[dict[str, list]]) -> list[str]:
    names: dict[str, int] = {}
    for variables in ranks:
        for name, (at, _) in variables.items():
            names[name] = min(at[0], names.get(name, at[0]))
    return sorted(names, key=lambda name: names[name])


def _variables(rank: Rank, source: list[str], values: "_Values") -> dict[str, list]:
    """Name → [steps, indices into values]. What a statement leaves arbitrary stays marked until it is filled."""
    variables: dict[str, list] = {}
    unfilled: dict[str, set[str]] = {}
    for number, step in enumerate(rank.steps):
        makes = UNFILLED.search("\n".join(source[step.line - 1 : step.last_line])) is not None
        filled = {text for item in step.communications for tensor in item.tensors for text in _tensors(tensor.after)}
        still = set().union(*unfilled.values()) - filled
        for name, value in step.changed.items():
            if isinstance(value, dict) and value["type"] in UNSHOWN:
                continue
            unfilled[name] = set(_tensors(value)) if makes else set(_tensors(value)) & still
            at, what = variables.setdefault(name, [[], []])
            at.append(number)
            what.append(values.index(value, unfilled[name]))
        for name in step.deleted:
            at, what = variables.setdefault(name, [[], []])
            at.append(number)
            what.append(-1)
            unfilled.pop(name, None)
    return {name: found for name, found in variables.items() if any(index >= 0 for index in found[1])}


def _tensors(value: Value) -> Iterator[str]:
    """The tensors in a value, as text."""
    if isinstance(value, dict):
        if "shape" in value:
            yield dumps(value)
        for item in value.get("items", []):
            yield from _tensors(item[1] if isinstance(item, list) else item)


class _Values:
    """Every distinct value once."""

    def __init__(self) -> None:
        self.table: list[Json] = []
        self._known: dict[str, int] = {}

    def index(self, value: Value, unfilled: Set[str] = frozenset()) -> int:
        compact = self.compact(value, unfilled)
        text = dumps(compact)
        if text not in self._known:
            self._known[text] = len(self.table)
            self.table.append(compact)
        return self._known[text]

    def compact(self, value: Value, unfilled: Set[str] = frozenset()) -> dict[str, Json]:
        """With short keys: t type, c contents, n length of what was cut. Of a tensor d dtype, s shape, v kind of device
        unless cpu, c all elements in row-major order or f the first, m mean, q norm, u if not filled yet, g gradient.
        Of anything else r how it is written, o if that does not tell its state."""
        if not isinstance(value, dict):
            kind = "NoneType" if value is None else type(value).__name__
            return {"t": kind, "c": json_number(value)}
        kind = value["type"]
        if "shape" in value:
            return self._tensor(value, unfilled)
        if kind == "float":
            return {"t": kind, "c": value["value"]}
        if kind == "str":
            return {"t": kind, "c": value["first"], "n": value["length"]}
        if "items" in value:
            items = value["items"]
            pairs = isinstance(items[0], list) if items else kind == "dict"
            contents = (
                {key: self.compact(item, unfilled) for key, item in items}
                if pairs
                else [self.compact(item, unfilled) for item in items]
            )
            return {"t": kind, "c": contents} | ({"n": value["length"]} if len(items) < value["length"] else {})
        told = value.get("error") or value.get("repr")
        return {"t": kind, "c": None, "r": told or kind.split(".")[-1]} | ({} if told else {"o": 1})

    def _tensor(self, value: dict[str, Any], unfilled: Set[str]) -> dict[str, Json]:
        result = {"t": value["type"], "d": value["dtype"], "s": value["shape"]}
        # Without its index: each rank has a device of its own, and that alone makes no values differ.
        device = value["device"].split(":")[0]
        if device != "cpu":
            result["v"] = device
        if unfilled and dumps(value) in unfilled and 0 not in value["shape"]:
            result["u"] = 1
        elif "values" in value:
            result["c"] = [json_number(element) for element in value["values"]]
        elif "first" in value:
            result |= {"f": [json_number(element) for element in value["first"][:FIRST]]}
            result |= {short: value[name] for short, name in (("m", "mean"), ("q", "norm")) if name in value}
        if value.get("grad") is not None:
            result["g"] = self.compact(value["grad"], unfilled)
        return result


class _Moves:
    """What the communications of a call moved.

    `moves`: {"op", "how", "ranks": [[rank, line, before, after, peer], …]}; before and after are lists of tensors,
    [expression, index into values, where its elements came from]. The last is a rank, SUM or UNKNOWN for all elements,
    or a list of ranks, one for each element (of a list of tensors: for each tensor).
    `at`: (rank, step) → the indices of its moves, counted from `start`.
    """

    def __init__(self, call: Call, values: _Values, start: int) -> None:
        self.moves: list[dict[str, Json]] = []
        self.at: dict[tuple[int, int], list[int]] = {}
        self._values = values
        self._start = start
        noted = [
            [(rank, number, step, item) for number, step in enumerate(notes.steps) for item in step.communications]
            for rank, notes in enumerate(call.ranks)
        ]
        collective = [[entry for entry in entries if self._is_collective(entry[3])] for entries in noted]
        together = list(zip(*collective, strict=False))
        same = all(len({entry[3].operation for entry in entries}) == 1 for entries in together)
        if not same or len({len(entries) for entries in collective}) > 1:
            # Groups of some ranks; who is in one is not known.
            together = [(entry,) for entries in collective for entry in entries]
        for entries in together:
            self._add(entries, len(entries) == call.world_size)
        for entries in self._pairs(noted):
            self._add(entries, True)

    @staticmethod
    def _is_collective(item: Communication) -> bool:
        return item.operation not in POINT_TO_POINT and item.operation != "barrier"

    @staticmethod
    def _pairs(noted: list[list[tuple]]) -> Iterator[tuple]:
        """Each send with the receive that it ends in: the first one of that pair of ranks that is still without."""
        receives: dict[tuple, list] = {}
        sends: dict[tuple, list] = {}
        for entries in noted:
            for entry in entries:
                rank, _, _, item = entry
                if item.operation in ("recv", "irecv"):
                    receives.setdefault((item.peer, rank), []).append(entry)
                elif item.operation in ("send", "isend"):
                    sends.setdefault((rank, item.peer), []).append(entry)
        for ends in {**sends, **receives}:
            started, ended = sends.get(ends, []), receives.get(ends, [])
            for index in range(max(len(started), len(ended))):
                yield tuple(side[index] for side in (started, ended) if index < len(side))

    def _add(self, entries: Sequence[tuple[int, int, Step, Communication]], complete: bool) -> None:
        sent: dict[int, list[Value]] = {}
        if complete:
            for rank, *_, item in entries:
                sent[rank] = [given.before for given in item.tensors if given.role != "output"]
        rows = []
        for rank, number, step, item in entries:
            before, after = [], []
            for given in item.tensors:
                if given.role != "output":
                    before.append([given.expression, self._values.index(given.before), rank])
                if given.role != "input" and given.after is not None:
                    origins = _origins(item, rank, given.after, sent)
                    after.append([given.expression, self._values.index(given.after), origins])
            rows.append([rank, step.line, before, after, item.peer])
            self.at.setdefault((rank, number), []).append(self._start + len(self.moves))
        first = entries[0][3]
        self.moves.append({"op": first.operation, "how": first.reduce_op, "root": first.root, "ranks": rows})


def _origins(item: Communication, rank: int, after: Value, sent: dict[int, list[Value]]) -> Json:
    """Where the elements (or tensors) of an output came from. What is said was moved is checked to be what was sent."""
    if re.search("reduce", item.operation):
        return SUM if item.operation != "reduce" or rank == item.root else UNKNOWN
    if not isinstance(after, dict):
        return UNKNOWN
    if item.operation in ("recv", "irecv", "broadcast", "scatter"):
        source = item.root if item.peer is None else item.peer
        (value, *_) = sent.get(source) or [None]
        if item.operation == "scatter":
            value = _chunk(value, rank, len(sent))
        return source if _same(value, after) else UNKNOWN
    return _gathered(item, rank, after, sent) if all(sent.values()) else UNKNOWN


def _gathered(item: Communication, rank: int, after: dict, sent: dict[int, list[Value]]) -> Json:
    """As `_origins`, for operations that put a part from each rank together."""
    world = len(sent)
    if item.operation.startswith("all_to_all"):
        arrived = [_chunk(sent[source][0], rank, world) for source in sorted(sent)]
    elif re.search("gather", item.operation):
        arrived = [sent[source][0] for source in sorted(sent)]
    else:
        return UNKNOWN
    if "items" in after:
        matches = len(after["items"]) == world and all(map(_same, arrived, after["items"]))
        return list(range(world)) if matches else UNKNOWN
    elements = [element for part in arrived for element in _elements(part)]
    if not elements or elements != after.get("values"):
        return UNKNOWN
    return [source for source, part in enumerate(arrived) for _ in _elements(part)]


def _same(one: Value, other: Value) -> bool:
    """Whether two tensors are equal as far as recorded (one may be a parameter, or on another device)."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    return all(one.get(key) == other.get(key) for key in ("shape", "dtype", "values", "first", "norm"))


def _elements(value: Value) -> list:
    return value.get("values", []) if isinstance(value, dict) else []


def _chunk(value: Value, part: int, parts: int) -> Value:
    """One of equal parts of a list or of a small tensor's elements."""
    if not isinstance(value, dict):
        return None
    if "items" in value:
        return value["items"][part] if part < len(value["items"]) else None
    elements = value.get("values", [])
    size = len(elements) // parts
    return {"values": elements[part * size : (part + 1) * size]}
