"""Finds, for each line of the real run's log, the `print` in the program that wrote it."""

import ast
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..record.recording import Recording

Place = tuple[str, int]
"""Path and line (from 1) of a print."""

GPU_NUM_ELEMENTS = 100 * 1024**2
"""Elements per rank of the lecture's benchmarks on GPUs; on CPUs they take fewer. So the log tells where it ran."""


@dataclass(frozen=True)
class Output:
    """What one print of one rank wrote; `rank` is None when the line does not tell.

    `at` is the recorded step that printed it, as call.rank.step, when there is a recording.
    """

    text: str
    rank: int | None
    at: str = ""


@dataclass
class Log:
    """The log, sorted by print.

    `outputs` maps each print that has a text of its own to what it wrote; `alike` maps a print whose text is that of an
    earlier one to the earlier one, which holds the outputs of both; `other` are the lines that belong to no print;
    `facts` are the values that fields of one name (world_size, …) took; `recorded` says how the run was recorded.
    """

    outputs: dict[Place, list[Output]] = field(default_factory=dict)
    alike: dict[Place, Place] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)
    facts: dict[str, list[str]] = field(default_factory=dict)
    recorded: str = ""

    def describe(self) -> str:
        """One sentence on what the log was recorded on: what the recording says, else as far as its lines tell."""
        if self.recorded:
            return self.recorded
        outputs = [output for found in self.outputs.values() for output in found]
        ranks = sorted({output.rank for output in outputs if output.rank is not None})
        known = []
        sizes = [int(text) for text in self.facts.get("num_elements", []) if text.isdigit()]
        if sizes:
            known.append("NCCL on GPUs" if max(sizes) == GPU_NUM_ELEMENTS else "gloo on CPUs")
        worlds = self.facts.get("world_size", [])
        if worlds:
            known.append(f"world size {' and '.join(worlds)}")
        if ranks:
            consecutive = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
            listed = f"{ranks[0]} to {ranks[-1]}" if consecutive else " and ".join(map(str, ranks))
            known.append(f"lines of {'ranks' if len(ranks) > 1 else 'rank'} {listed}")
        if not known:
            return "Its log does not tell on what."
        return f"Its log tells: {', '.join(known)}."


@dataclass(frozen=True)
class _Print:
    """A print's text as a pattern: the literal parts in order, and the source of each field between them."""

    place: Place
    literals: tuple[str, ...]
    fields: tuple[str, ...]

    def match(self, text: str) -> dict[str, str] | None:
        """The fields' texts when this print can have written `text`."""
        last = len(self.fields) - 1
        pattern = re.escape(self.literals[0])
        for index, (name, literal) in enumerate(zip(self.fields, self.literals[1:], strict=True)):
            group = r"(\d+)" if name == "rank" else "(.*)" if index == last else "(.*?)"
            part = group + re.escape(literal)
            pattern += part if index == last else f"(?>{part})"  # Atomic: no field is tried twice, so time is linear
        found = re.fullmatch(pattern, text, re.DOTALL)
        return None if found is None else dict(zip(self.fields, found.groups(), strict=True))


def load_log(path: Path, files: dict[str, str]) -> Log | None:
    """Read the log at `path` of the program in `files` (path → source); None when there is no log.

    Raises InputError when the program has prints and no line of the log is of any of them.
    """
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return None
    prints = [found for name, source in files.items() for found in _prints(name, source)]
    log = sort_log(lines, prints)
    if prints and not any(log.outputs.values()):
        raise InputError(f"no line of {path} is of a print in {', '.join(files)}: record the log again")
    return log


def recorded_log(path: Path, recording: Recording, files: dict[str, str]) -> Log:
    """The log at `path` of a recorded run: the recording knows which line printed what.

    Raises InputError when the log is missing or is that of another run.
    """
    again = f"record both again with python -m trace_page.record {recording.module}"
    try:
        lines = _lines(path)
    except FileNotFoundError:
        raise InputError(f"no log {path} beside the recording: {again}") from None
    log = Log(recorded=_describe(recording))
    printed: list[tuple[str | None, int | None, int | None, str, str]] = []
    for index, call in enumerate(recording.calls):
        for rank, notes in enumerate(call.ranks):
            printed += [(call.path, out.line, rank, f"{index}.{rank}.{out.step}", out.text) for out in notes.prints]
    printed += [(out.path, out.line, None, "", out.text) for out in recording.prints]
    unknown = Counter(lines)
    unknown.subtract(text for *_, text in printed)
    missing = next((text for text, number in unknown.items() if number < 0), None)
    # Ranks may have written into each other's lines: then the lines differ, and what they are made of does not.
    if missing is not None and not Counter("".join(text for *_, text in printed)) <= Counter("".join(lines)):
        raise InputError(f"{path} is of another run than the recording, which has the line {missing[:80]!r}: {again}")
    for source, line, rank, at, text in printed:
        if source not in files or line is None:
            unknown[text] += 1
            continue
        outputs = log.outputs.setdefault((source, line), [])
        if outputs and at and outputs[-1].at == at and text[:1].isspace():  # as in a printed matrix
            outputs[-1] = Output(f"{outputs[-1].text}\n{text}", rank, at)
        else:
            outputs.append(Output(text, rank, at))
    log.other = [text for text in unknown.elements() if text.strip()]
    return log


def _lines(path: Path) -> list[str]:
    """The lines of a log, as they were printed: a carriage return or another separator inside one is part of it."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    lines = text.split("\n")
    if os.linesep == "\r\n" or all(line.endswith("\r") for line in lines[:-1]):  # written on Windows
        lines = [line.removesuffix("\r") for line in lines]
    return lines if lines[-1] else lines[:-1]


def _describe(recording: Recording) -> str:
    facts = recording.environment
    worlds = list(dict.fromkeys(str(call.world_size) for call in recording.calls))
    devices = " and ".join(facts.get("devices", []))
    return (
        f"Recorded with {' and '.join(facts.get('backends', [])) or 'no backend'} on "
        f"{'CPUs' if devices == 'cpu' else devices or 'an unknown device'}, world size {' and '.join(worlds)}, "
        f"PyTorch {facts.get('torch')}, Python {facts.get('python')}, {facts.get('platform')}."
    )


def sort_log(lines: list[str], prints: list[_Print]) -> Log:
    """Give each of `lines` to the print that matches with the most literal text; an indented line that matches none
    goes on with the line above it, as in a printed matrix."""
    log = Log()
    first_of: dict[tuple, Place] = {}
    patterns = []
    for pattern in prints:
        first = first_of.setdefault((pattern.literals, pattern.fields), pattern.place)
        if first != pattern.place:
            log.alike[pattern.place] = first
        else:
            log.outputs[first] = []
            patterns.append(pattern)
    patterns.sort(key=lambda pattern: -sum(map(len, pattern.literals)))
    previous: list[Output] | None = None
    index = 0
    while index < len(lines):
        place, fields, count = _owner(lines, index, patterns)
        text = "\n".join(lines[index : index + count])
        index += count
        if place is not None:
            previous = log.outputs[place]
            previous.append(Output(text, int(fields["rank"]) if "rank" in fields else None))
            for name, value in fields.items():
                if name.isidentifier() and value not in log.facts.setdefault(name, []):
                    log.facts[name].append(value)
        elif previous and text[:1].isspace() and text.strip():
            previous[-1] = Output(f"{previous[-1].text}\n{text}", previous[-1].rank)
        elif text.strip():
            previous = None
            log.other.append(text)
    return log


def _owner(lines: list[str], start: int, patterns: list[_Print]) -> tuple[Place | None, dict[str, str], int]:
    """The print that wrote the line at `start`, its fields, and how many lines it wrote."""
    for pattern in patterns:
        count = 1 + sum(literal.count("\n") for literal in pattern.literals)
        fields = pattern.match("\n".join(lines[start : start + count]))
        if fields is not None:
            return pattern.place, fields, count
    return None, {}, 1


def _prints(path: str, source: str) -> Iterator[_Print]:
    """Every print to stdout in `source` that has literal text to be known by."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            options = {keyword.arg: keyword.value for keyword in node.keywords}
            if "file" in options:
                continue
            separator, end = _constant(options.get("sep"), " "), _constant(options.get("end"), "\n")
            parts: list[str | ast.expr] = []
            for index, argument in enumerate(node.args):
                parts += [separator] * (index > 0) + _parts(argument)
            pattern = _pattern((path, node.lineno), [*parts, end])
            if pattern is not None:
                yield pattern


def _constant(node: ast.expr | None, default: str) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else default


def _parts(argument: ast.expr) -> list[str | ast.expr]:
    """The literal texts and field expressions that one printed argument consists of."""
    if isinstance(argument, ast.Constant):
        return [str(argument.value)]
    if isinstance(argument, ast.JoinedStr):
        return [
            part.value if isinstance(part, ast.FormattedValue) else str(part.value)  # type: ignore[attr-defined]
            for part in argument.values
        ]
    return [argument]


def _pattern(place: Place, parts: list[str | ast.expr]) -> _Print | None:
    literals, fields = [""], []
    for part in parts:
        if isinstance(part, str):
            literals[-1] += part
        else:
            fields.append(ast.unparse(part))
            literals.append("")
    if not literals[-1].endswith("\n"):
        return None  # Not a whole line: what follows it cannot be known
    literals[-1] = literals[-1][:-1]
    if not any(literal.strip() for literal in literals):
        return None
    return _Print(place, tuple(literals), tuple(fields))
