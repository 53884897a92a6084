"""What the page's script needs to show every rank at every step of its program, and what its line moved."""

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from ..read.course import Course
from ..read.trace import Json
from ..record.recording import Call, Communication, Rank, Recording, Step, Value
from .steps import dumps, json_number

SUM, UNKNOWN = -1, -2
"""Where an element came from, other than from a rank: it is a sum over ranks, or that is not known."""

FIRST = 3
"""Elements shown of a tensor that is not whole."""

POINT_TO_POINT = {"send": "recv", "isend": "irecv", "recv": "send", "irecv": "isend"}
UNSHOWN = ("module", "function", "builtin_function_or_method", "type")
"""Types of variables that are code, not values."""

UNFILLED = re.compile(r"\b(new_)?empty(_like)?\(")
"""A call that makes a tensor whose contents are arbitrary."""


def rank_table(course: Course, recording: Recording) -> dict[str, Json]:
    """The table for the script.

    `steps`: step → [call, [first, last of each rank's turn, …], [index into moves, …], {rank that does not execute this
    line: the line that it executed last}]. `calls`: per recorded call its `ranks`, for each the variables as
    name → [steps at which it changed, indices into values; -1: deleted], and the variables' `names` in order of
    appearance. `moves`: what a communication moved, see `_Moves`. `values`: by short keys, see `_Values.compact`.
    """
    values = _Values()
    calls, moves, moves_at = [], [], []
    for call in recording.calls:
        source = course.trace.files.get(call.path, "").split("\n")
        ranks = [_variables(rank, source, values) for rank in call.ranks]
        calls.append({"ranks": ranks, "names": _in_order_of_appearance(ranks)})
        found = _Moves(call, values, len(moves))
        moves += found.moves
        moves_at.append(found.at)
    steps = {}
    for number, (index, turns) in course.recorded.items():
        moved = {
            move
            for rank, turn in enumerate(turns)
            for step in range(turn.first, turn.last + 1)
            if turn.first >= 0
            for move in moves_at[index].get((rank, step), [])
        }
        ranks = recording.calls[index].ranks
        elsewhere = {
            rank: ranks[rank].steps[last].line for rank, (first, last) in enumerate(turns) if first < 0 <= last
        }
        steps[number] = [index, [bound for turn in turns for bound in turn], sorted(moved), elsewhere]
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
