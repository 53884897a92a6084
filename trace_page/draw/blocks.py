"""The order of execution: a function stands as a block below the line that first calls it, not where its file does."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..read.trace import Trace

Place = tuple[str, int]


@dataclass(frozen=True)
class Definition:
    """A function or class at the top of a file, from its decorators and the comment above it to its last line."""

    path: str
    name: str
    first: int
    last: int


@dataclass(frozen=True)
class FirstCall:
    """The line that first calls into a definition, and the step at which it does."""

    place: Place
    step: int


def definitions_in(trace: Trace) -> list[Definition]:
    """All top-level definitions of all files of the trace."""
    return [definition for path, source in trace.files.items() for definition in _definitions(path, source)]


def _definitions(path: str, source: str) -> Iterator[Definition]:
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        last = node.end_lineno or node.lineno
        while last < len(lines) and not lines[last].strip():
            last += 1
        yield Definition(path, node.name, first, last)


def first_calls(trace: Trace, definitions: list[Definition]) -> dict[Definition, FirstCall]:
    """For each definition that executes a step and is called by another one, or by a line outside all: where first.

    A step's stack tells who called whom. Passed over are frames of files that are not on the page, frames of a
    definition that executes no step itself (it only hands on, as one that starts ranks), and frames of a definition
    that stands elsewhere because it was called before. What is entered first is called by what was entered before
    it, so no definition ends up inside itself.
    """
    at = {
        (definition.path, line): definition
        for definition in definitions
        for line in range(definition.first, definition.last + 1)
    }
    executing = {at.get((step.here.path, step.here.line)) for step in trace.steps}
    entered_by: dict[Definition, tuple[Place, ...]] = {}
    found: dict[Definition, FirstCall] = {}
    for number, step in enumerate(trace.steps):
        above: tuple[Place, ...] = ()
        caller: Place | None = None
        for frame in step.stack:
            place = (frame.path, frame.line)
            definition = at.get(place)
            if frame.path in trace.files and definition in executing:
                if definition and definition not in entered_by:
                    entered_by[definition] = above
                    if caller and at.get(caller) != definition:
                        found[definition] = FirstCall(caller, number)
                if definition is None or entered_by[definition] == above:
                    caller = place
            above += (place,)
    return found
