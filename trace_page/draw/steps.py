"""What the page's script needs to know of every step, worked out here so that a step costs the browser nothing.

The result is one JSON object of arrays indexed by step (line, call, …) and tables that these index (calls, values).
"""

import json
import math
from collections.abc import Sequence

from ..read.course import Course
from ..read.trace import Json, Step

WHOLE = 8
HEAD, TAIL = 4, 2
"""A dimension of a tensor longer than WHOLE is shown by its first HEAD and last TAIL elements."""

MAX_ITEMS = 24
"""A longer list or dict is shown by its first MAX_ITEMS elements."""

MAX_TEXT = 400
"""A longer string is shown by its first MAX_TEXT characters."""


def step_table(course: Course, rows: dict[str, dict[int, int]]) -> dict[str, Json]:
    """The table for the page's script.

    `rows` says for lines that have no row of their own on the page (within a statement that is shown as narration, or
    hidden) which line's row stands for them. Fields, per step:
    `file`, `line`, `call`; `overNext`, `overBack`, `out`: the step that the control leads to, or -1. `calls`: frames as
    [file, line, function] (file -1: not on the page), `recorded` if any of its steps is, and `values`: per inspected
    name the steps at which it changed and, for each, an index into `values` or -1 for cleared.
    `parts`: for steps that make k > 1 renderings under @animate, k. `traced`: for each step of edtrace's trace the step
    here, absent if they are the same. `communications`: the steps at which something moves between ranks.
    """
    trace, recorded = course.trace, course.recorded
    paths = list(trace.files)
    depths = [len(step.stack) for step in trace.steps]
    calls: dict[tuple, int] = {}
    call_table: list[dict[str, Json]] = []
    values: dict[str, int] = {}
    call_of = []
    for number, step in enumerate(trace.steps):
        call = calls.setdefault(step.call, len(calls))
        call_of.append(call)
        if call == len(call_table):
            frames = [[_index(paths, frame.path), frame.line, frame.function] for frame in step.stack[:-1]]
            call_table.append({"frames": frames, "values": {}})
        if number in recorded:
            call_table[call]["recorded"] = True
        for name, value in step.env.items():
            text = "" if value is None else dumps(_compact(value))
            index = values.setdefault(text, len(values)) if text else -1
            at, what = call_table[call]["values"].setdefault(name, [[], []])
            if not what or what[-1] != index or index >= 0:
                at.append(number)
                what.append(index)
    functions: dict[str, int] = {}
    return {
        "files": paths,
        "file": [paths.index(step.here.path) for step in trace.steps],
        "line": [step.here.line for step in trace.steps],
        "function": [functions.setdefault(step.here.function, len(functions)) for step in trace.steps],
        "functions": list(functions),
        "call": call_of,
        "calls": call_table,
        "values": [json.loads(text) for text in values],
        "overNext": _nearest(depths, allow_equal=True),
        "overBack": _nearest(depths, allow_equal=True, backwards=True),
        "out": _nearest(depths, allow_equal=False),
        "rows": [rows[path] for path in paths],
        "communications": course.communications,
        **({"traced": course.traced} if recorded else {}),
        "parts": {number: parts for number, step in enumerate(trace.steps) if (parts := animated_parts(step)) > 1},
    }


def animated_parts(step: Step) -> int:
    """How many renderings of `step` appear one at a time."""
    return sum(rendering.animate for rendering in step.renderings)


def to_script_json(data: object) -> str:
    """`data` as JSON that is safe inside a script element."""
    return dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def dumps(data: object) -> str:
    """`data` as strict JSON, as short as it goes."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _index(paths: Sequence[str], path: str) -> int:
    return paths.index(path) if path in paths else -1


def _nearest(depths: Sequence[int], allow_equal: bool, backwards: bool = False) -> list[int]:
    """For each step the next (or last) one less deep in the stack, or equally deep if allowed; -1 if there is none."""
    found = [-1] * len(depths)
    waiting: list[int] = []
    for number in reversed(range(len(depths))) if backwards else range(len(depths)):
        while waiting and depths[number] < depths[waiting[-1]] + allow_equal:
            found[waiting.pop()] = number
        waiting.append(number)
    return found


def _compact(value: dict[str, Json]) -> dict[str, Json]:
    """An edtrace value with short keys (t type, d dtype, s shape, c contents), cut to what a panel can show; `n` is the
    full length of a string, list or dict that was cut."""
    contents, shape = value["contents"], value.get("shape")
    result: dict[str, Json] = {"t": value["type"]}
    if shape is not None:
        result |= {"d": str(value.get("dtype")).removeprefix("torch."), "s": shape, "c": _corner(contents)}
    elif isinstance(contents, dict):
        result |= {"c": {name: _compact(item) for name, item in list(contents.items())[:MAX_ITEMS]}}
    elif isinstance(contents, list):
        result |= {"c": [_compact(item) for item in contents[:MAX_ITEMS]]}
    elif isinstance(contents, str):
        result |= {"c": contents[:MAX_TEXT]}
    else:
        result |= {"c": json_number(contents)}
    limit = MAX_TEXT if isinstance(contents, str) else MAX_ITEMS
    if shape is None and isinstance(contents, str | list | dict) and len(contents) > limit:
        result["n"] = len(contents)
    return result


def _corner(contents: Json) -> Json:
    if not isinstance(contents, list):
        return json_number(contents)
    if len(contents) > WHOLE:
        contents = contents[:HEAD] + contents[-TAIL:]
    return [_corner(item) for item in contents]


def json_number(value: Json) -> Json:
    """JSON has no inf and nan, nor whole numbers that a browser reads exactly above 2**53: these go as text."""
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > 2**53):
        return str(value)
    return value
