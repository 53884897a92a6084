"""Reads a trace written by edtrace 0.1.20 and checks its shape, so that the rest can rely on it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import InputError
from .checked import EntryError, convert

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
        trace = _trace(
            convert(json.loads(path.read_text(encoding="utf-8")), _Trace, "")
        )  # with NaN, which msgspec refuses
    except FileNotFoundError:
        raise InputError(f"no trace {path}: write it with python -m edtrace.execute -m {path.stem}") from None
    except EntryError as error:
        raise InputError(f"{path} is not a trace of edtrace: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a trace: it is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
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


class _Frame(Struct):
    path: str
    line_number: int
    function_name: str


class _Place(Struct):
    path: str
    line_number: int


class _Rendering(Struct):
    type: str
    data: Json = None
    style: dict[str, Json] | None = None
    external_link: dict[str, Json] | None = None
    internal_link: _Place | None = None
    animate: bool = False


class _Step(Struct):
    stack: list[_Frame]
    env: dict[str, dict[str, Json] | None]
    renderings: list[_Rendering]


class _Trace(Struct):
    files: dict[str, str]
    hidden_line_numbers: dict[str, list[int]]
    steps: list[_Step]


def _trace(data: _Trace) -> Trace:
    hidden_lines = {}
    for path in data.files:
        if path not in data.hidden_line_numbers:
            raise EntryError(f"hidden_line_numbers has no entry {path!r}")
        hidden_lines[path] = frozenset(data.hidden_line_numbers[path])
    if not data.steps:
        raise EntryError("it has no steps")
    line_counts = {path: source.count("\n") + 1 for path, source in data.files.items()}
    steps = tuple(_step(step, f"steps[{index}]", line_counts) for index, step in enumerate(data.steps))
    return Trace(data.files, hidden_lines, steps)


def _step(data: _Step, where: str, line_counts: dict[str, int]) -> Step:
    if not data.stack:
        raise EntryError(f"{where}.stack is empty")
    stack = tuple(Frame(frame.path, frame.line_number, frame.function_name) for frame in data.stack)
    if not 1 <= stack[-1].line <= line_counts.get(stack[-1].path, 0):
        raise EntryError(f"{where} is at {stack[-1].path}:{stack[-1].line}, which is not in files")
    for name, value in data.env.items():
        if value is not None:
            _check_value(value, f"{where}.env.{name}")
    return Step(stack, data.env, tuple(map(_rendering, data.renderings)))


class _Value(Struct):
    type: str
    contents: Json
    shape: list[int] | None = None


def _check_value(value: Json, where: str) -> None:
    """A value is {type, contents, dtype, shape}; contents of a list or dict are values again, of a tensor numbers."""
    read = convert(value, _Value, where)
    if read.shape is not None:
        _check_tensor(read.contents, read.shape, where)
    elif isinstance(read.contents, list | dict):
        pairs = enumerate(read.contents) if isinstance(read.contents, list) else read.contents.items()
        for key, item in pairs:
            _check_value(item, f"{where}.contents[{key}]")


def _check_tensor(contents: Json, shape: list[int], where: str) -> None:
    if not shape:
        if isinstance(contents, list | dict):
            raise EntryError(f"{where} has shape [] and contents that are not one number")
        return
    if not isinstance(contents, list) or len(contents) != shape[0]:
        raise EntryError(f"{where} has contents that do not fit its shape")
    for item in contents:
        _check_tensor(item, shape[1:], where)


def _rendering(data: _Rendering) -> Rendering:
    link = data.internal_link
    return Rendering(
        type=data.type,
        data=data.data,
        style=data.style or {},
        external_link=data.external_link,
        internal_link=(link.path, link.line_number) if link else None,
        animate=data.animate,
    )
