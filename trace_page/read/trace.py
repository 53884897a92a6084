"""Reads a trace written by edtrace 0.1.20 and checks its shape, so that the rest can rely on it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError

Json = Any
"""Anything that JSON can hold, as json.loads gives it."""


@dataclass(frozen=True)
class Frame:
    """One entry of a step's stack: a call on its way, at `line` (from 1) of `path`."""

    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Rendering:
    """One thing that a line shows in its place; the fields are edtrace's."""

    type: str
    data: Json
    style: dict[str, Json]
    external_link: dict[str, Json] | None
    internal_link: tuple[str, int] | None
    animate: bool


@dataclass(frozen=True)
class Step:
    """One executed line. `env` holds what it inspected (edtrace values), and None for what it cleared."""

    stack: tuple[Frame, ...]
    env: dict[str, Json]
    renderings: tuple[Rendering, ...]

    @property
    def here(self) -> Frame:
        """The frame that executes this step's line."""
        return self.stack[-1]

    @property
    def call(self) -> tuple[tuple[str, int], ...]:
        """What two steps of the same call have in common: all stack entries but the last, by path and line."""
        return tuple((frame.path, frame.line) for frame in self.stack[:-1])


@dataclass(frozen=True)
class Trace:
    """A whole trace: sources by path, lines not to be shown by path, steps in order."""

    files: dict[str, str]
    hidden_lines: dict[str, frozenset[int]]
    steps: tuple[Step, ...]


def load_trace(path: Path, root: Path) -> Trace:
    """Read the trace at `path`, whose source paths are relative to `root`.

    Raises InputError when the file is missing, is not JSON, is not a trace, or when a source has changed since.
    """
    try:
        trace = _trace(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"no trace {path}: write it with python -m edtrace.execute -m {path.stem}") from None
    except ValueError as error:  # also what is not UTF-8, and a number of too many digits
        raise InputError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a trace: it is nested too deeply") from None
    except _ShapeError as error:
        raise InputError(f"{path} is not a trace of edtrace: {error}") from None
    for name, source in trace.files.items():
        _check_unchanged(root / name, name, source)
    return trace


def _check_unchanged(path: Path, name: str, traced: str) -> None:
    again = "trace it again with python -m edtrace.execute"
    try:
        current = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {name}, which the trace is of: {error}") from None
    if current == traced:
        return
    old, new = traced.split("\n"), current.split("\n")
    differing = (n for n, (before, now) in enumerate(zip(old, new, strict=False)) if before != now)
    line = next(differing, min(len(old), len(new)))
    raise InputError(f"{name} has changed since it was traced, first at line {line + 1}: {again}")


class _ShapeError(Exception):
    """A part of the JSON is not what edtrace writes; the message says which."""


def _get(parent: Json, key: str | int, kinds: type | tuple[type, ...], where: str) -> Json:
    """`parent[key]`, which must be there and of one of `kinds` (bool is no int here)."""
    here = f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}".lstrip(".")
    try:
        value = parent[key]
    except (KeyError, TypeError):
        raise _ShapeError(f"{here} is missing") from None
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
        raise _ShapeError(f"{here} is {type(value).__name__}, not {names}")
    return value


def _trace(data: Json) -> Trace:
    if not isinstance(data, dict):
        raise _ShapeError(f"it is a {type(data).__name__}, not an object with files and steps")
    files = _get(data, "files", dict, "")
    for path in files:
        _get(files, path, str, "files")
    hidden = _get(data, "hidden_line_numbers", dict, "")
    hidden_lines = {}
    for path in files:
        numbers = _get(hidden, path, list, "hidden_line_numbers")
        where = f"hidden_line_numbers.{path}"
        hidden_lines[path] = frozenset(_get(numbers, index, int, where) for index in range(len(numbers)))
    line_counts = {path: source.count("\n") + 1 for path, source in files.items()}
    raw_steps = _get(data, "steps", list, "")
    if not raw_steps:
        raise _ShapeError("it has no steps")
    steps = tuple(_step(raw_steps, index, line_counts) for index in range(len(raw_steps)))
    return Trace(files, hidden_lines, steps)


def _step(raw_steps: list, index: int, line_counts: dict[str, int]) -> Step:
    where = f"steps[{index}]"
    raw = _get(raw_steps, index, dict, "steps")
    raw_stack = _get(raw, "stack", list, where)
    frames = []
    for depth in range(len(raw_stack)):
        entry = _get(raw_stack, depth, dict, f"{where}.stack")
        at = f"{where}.stack[{depth}]"
        path, line = _get(entry, "path", str, at), _get(entry, "line_number", int, at)
        frames.append(Frame(path, line, _get(entry, "function_name", str, at)))
    if not frames:
        raise _ShapeError(f"{where}.stack is empty")
    here = frames[-1]
    if not 1 <= here.line <= line_counts.get(here.path, 0):
        raise _ShapeError(f"{where} is at {here.path}:{here.line}, which is not in files")
    env = _get(raw, "env", dict, where)
    for name in env:
        value = _get(env, name, (dict, type(None)), f"{where}.env")
        if value is not None:
            _check_value(value, f"{where}.env.{name}")
    raw_renderings = _get(raw, "renderings", list, where)
    renderings = (_rendering(raw_renderings, number, f"{where}.renderings") for number in range(len(raw_renderings)))
    return Step(tuple(frames), env, tuple(renderings))


def _check_value(value: Json, where: str) -> None:
    """A value is {type, contents, dtype, shape}; contents of a list or dict are values again, of a tensor numbers."""
    _get(value, "type", str, where)
    if "contents" not in value:
        raise _ShapeError(f"{where}.contents is missing")
    contents = value["contents"]
    shape = _get({"shape": value.get("shape")}, "shape", (list, type(None)), where)
    if shape is not None:
        for index in range(len(shape)):
            _get(shape, index, int, f"{where}.shape")
        _check_tensor(contents, shape, where)
    elif isinstance(contents, list | dict):
        for key in range(len(contents)) if isinstance(contents, list) else contents:
            _check_value(_get(contents, key, dict, f"{where}.contents"), f"{where}.contents[{key}]")


def _check_tensor(contents: Json, shape: list[int], where: str) -> None:
    if not shape:
        if isinstance(contents, list | dict):
            raise _ShapeError(f"{where} has shape [] and contents that are not one number")
        return
    if not isinstance(contents, list) or len(contents) != shape[0]:
        raise _ShapeError(f"{where} has contents that do not fit its shape")
    for item in contents:
        _check_tensor(item, shape[1:], where)


def _rendering(parent: list, index: int, where: str) -> Rendering:
    raw = _get(parent, index, dict, where)
    here = f"{where}[{index}]"
    internal = raw.get("internal_link")
    if internal is not None:
        internal = (_get(internal, "path", str, here), _get(internal, "line_number", int, here))
    external = _get({"external_link": raw.get("external_link")}, "external_link", (dict, type(None)), here)
    style = _get({"style": raw.get("style")}, "style", (dict, type(None)), here)
    return Rendering(
        type=_get(raw, "type", str, here),
        data=raw.get("data"),
        style=style or {},
        external_link=external,
        internal_link=internal,
        animate=_get({"animate": raw.get("animate", False)}, "animate", bool, here),
    )
