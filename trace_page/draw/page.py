"""Puts trace, log and template together into one HTML file."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..errors import InputError
from ..read.course import Course, join
from ..read.log import Log, Output, load_log, recorded_log
from ..read.main_pass import trace_main
from ..read.recording import load_recording
from ..read.source import Outline, code_lines, outline
from ..read.trace import Trace, load_trace
from ..record.recording import Recording
from .blocks import Definition, definitions_in, first_calls
from .narration import Renderer
from .rank_table import rank_table
from .scripts import bundle
from .steps import animated_parts, step_table, to_script_json
from .terminal import terminal_text

BROWSER = Path(__file__).parents[1] / "browser"
TRACES = "var/traces"
"""Where traces, logs and pages lie, relative to the sources."""

COLOURS = 8
"""Rank colours in page.css; later ranks take them again."""

EARLY_SCRIPT = (
    'document.documentElement.classList.add("scripted-page");document.documentElement.toggleAttribute("data-values");'
)
"""Runs before the first paint, so that what needs script has its room in it and nothing jumps."""

Place = tuple[str, int]


@dataclass
class Said:
    """One thing that a statement shows in its place, and when a stepping reader first reaches it."""

    html: Markup
    at: float
    is_note: bool


@dataclass
class Line:
    """One line of code; `address` is None for a line that no step executes."""

    number: int
    code: Markup
    indent: int
    address: str | None


@dataclass
class OutputRow:
    """All that one rank printed at one print: texts, each with the recorded step that printed it, if any, and the step
    of the page that it appears at."""

    rank: int | None
    colour: int
    texts: list[tuple[Markup, str, int | None]]


@dataclass
class Row:
    """One line of code, or one statement that is shown as what it says, with the outputs below it."""

    id: str
    at: int | None  # None: not yet known
    lines: list[Line]
    said: list[Said] = field(default_factory=list)
    callers: list[tuple[Markup, int]] = field(default_factory=list)
    outputs: list[OutputRow] = field(default_factory=list)
    remark: str = ""
    blocks: list["Block"] = field(default_factory=list)
    home: str = ""
    """Of a row without lines: the id of the block whose place in the file this is."""


@dataclass
class Block:
    """A function or class below the line that first calls it, at the step that does."""

    id: str
    name: str
    at: int
    rows: list[Row]
    caller: Markup
    line: int


@dataclass
class Section:
    """An entry of the table of contents."""

    title: str
    is_code: bool
    link: Markup
    is_main: bool = False
    parts: list["Section"] = field(default_factory=list)


def write_page(root: Path, lecture: str) -> str:
    """Write `root`/var/traces/`lecture`.html, whole or not at all, and return a line that says so.

    Raises InputError when trace, sources or log cannot be used.
    """
    traces = root / TRACES
    recording, refused = load_lecture_recording(traces / f"{lecture}_recording.json", root)
    if recording is None or (traces / f"{lecture}.json").exists():
        trace = load_trace(traces / f"{lecture}.json", root)
    else:
        trace = trace_main(recording, root)
    log = load_lecture_log(traces / f"{lecture}_stdout.txt", recording, trace)
    html = build_page(lecture, root, trace, log, recording).encode("utf-8", "backslashreplace")  # lone surrogates
    target = traces / f"{lecture}.html"
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(html)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    if log is None:
        told = f"no log {TRACES}/{lecture}_stdout.txt, so no outputs"
    else:
        told = f"{sum(map(len, log.outputs.values()))} outputs placed, {len(log.other)} lines of no print"
    if recording is None:
        told += f", {refused or f'no {lecture}_recording.json'}, so the values are rank 0's"
    return f"wrote {TRACES}/{target.name}: {len(html) / 1000:.0f} kB, {len(trace.steps)} traced steps, {told}"


def load_lecture_recording(path: Path, root: Path) -> tuple[Recording | None, str]:
    """The recording at `path`, if there is one; else what is there instead.

    Raises InputError when it cannot be used or belongs to another source.
    """
    try:
        recording = load_recording(path)
    except FileNotFoundError:
        return None, ""
    except ValueError as error:
        if _is_trace(path):
            return None, f"{path.name} is a trace, not a recording"
        raise InputError(str(error)) from None
    if stale := recording.stale_files(root):
        again = f"record it again with python -m trace_page.record {recording.module}"
        raise InputError(f"{path} is a recording of another {', '.join(stale)}: {again}")
    return recording, ""


def _is_trace(path: Path) -> bool:
    """Whether the file is what edtrace writes, of a lecture whose name ends as that of a recording."""
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "steps" in data and "calls" not in data


def load_lecture_log(path: Path, recording: Recording | None, trace: Trace) -> Log | None:
    """The log of the run; without a recording there may be none. Raises InputError when it cannot be used."""
    if recording is None:
        return load_log(path, trace.files)
    return recorded_log(path, recording, trace.files)


def build_page(
    lecture: str, root: Path, trace: Trace, log: Log | None = None, recording: Recording | None = None
) -> str:
    """The page as HTML; the same inputs give the same bytes."""
    course = join(trace, recording)
    trace = course.trace
    ranks = rank_table(course, recording) if recording else None
    builder = _Builder(root, course, log)
    files = builder.files()
    contents = builder.contents()
    style = (BROWSER / "style.css").read_text(encoding="utf-8") + builder.style()
    script = bundle()
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template = environment.from_string((BROWSER / "template.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=contents[0].title if contents and not contents[0].is_code else lecture,
        lecture=lecture,
        contents=contents,
        files=files,
        log=log,
        log_name=f"{lecture}_stdout.txt",
        other=[terminal_text(text) for text in builder.unplaced()],
        steps=len(trace.steps),
        communicates=bool(course.communications),
        table=Markup(to_script_json(step_table(course, builder.standing_rows))),
        ranks=Markup(to_script_json(ranks)) if ranks else None,
        world_size=max((call.world_size for call in recording.calls), default=0) if recording else 0,
        colours=COLOURS,
        style=Markup(style),
        early=Markup(EARLY_SCRIPT),
        script=Markup(script),
        style_hash=_hash(style),
        early_hash=_hash(EARLY_SCRIPT),
        script_hash=_hash(script),
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()).decode()


class _Builder:
    def __init__(self, root: Path, course: Course, log: Log | None) -> None:
        trace = self.trace = course.trace
        self.log = log
        # When each rank executes each of its recorded steps: what it prints appears then.
        self.printed_at = {
            f"{call}.{rank}.{turn.first}": number
            for number, (call, turns) in course.recorded.items()
            for rank, turn in enumerate(turns)
            if turn.first >= 0
        }
        self.paths = list(trace.files)
        self.outline: Outline = outline(trace.files)
        self.first_step: dict[Place, int] = {}
        for number, step in enumerate(trace.steps):
            self.first_step.setdefault((step.here.path, step.here.line), number)
        self.renderer = Renderer(root, TRACES, self.link)
        uses = {place: self.link(*target) or "" for place, target in self.outline.uses.items()}
        self.code = {path: code_lines(path, source, uses) for path, source in trace.files.items()}
        self.groups = self._group_renderings()
        # In order of execution, which is that of the page: no heading may skip a level.
        self.said = {
            place: [said for number, _ in says for said in self._said(*place, number)]
            for place, says in self.groups.items()
        }
        self.placed: set[Place] = set()
        self.standing_rows: dict[str, dict[int, int]] = {path: {} for path in self.paths}

    def id(self, path: str, line: int) -> str:
        """The HTML id of the row of a line; the first file's, nearly always the only one, are short to link to."""
        number = self.paths.index(path)
        return f"L{line}" if number == 0 else f"F{number}L{line}"

    def link(self, path: str, line: int) -> Markup | None:
        """The attributes of a link to a line: with script it goes to a step there, without to the line's row."""
        if path not in self.paths or not 1 <= line <= len(self.trace.files[path].split("\n")):
            return None
        first, _ = self.outline.statement.get((path, line), (line, line))
        row = first if (path, first) in self.first_step else line
        return Markup('href="#{}" data-file="{}" data-line="{}"').format(
            self.id(path, row), self.paths.index(path), line
        )

    def _group_renderings(self) -> dict[Place, list[tuple[int, int]]]:
        """For each statement that says something, by place of its first line: the steps whose renderings differ, each
        with the line that was executed."""
        groups: dict[Place, dict[str, tuple[int, int]]] = {}
        for number, step in enumerate(self.trace.steps):
            path, line = step.here.path, step.here.line
            if step.renderings and line not in self.trace.hidden_lines[path]:
                first, _ = self.outline.statement.get((path, line), (line, line))
                groups.setdefault((path, first), {}).setdefault(repr(step.renderings), (number, line))
        return {place: list(found.values()) for place, found in groups.items()}

    def files(self) -> list[tuple[str, list[Row], list[Row]]]:
        """Each file as its path, the rows of its preamble and the others, in the order in which they happen."""
        definitions = definitions_in(self.trace)
        parts = {}
        for path in self.paths:
            heads = [definition.first for definition in definitions if definition.path == path]
            parts[path] = _split_preamble(self.rows(path), heads)
        self._put_blocks(definitions, {path: rows for path, (_, rows) in parts.items()})
        return [(path, *part) for path, part in parts.items()]

    def _put_blocks(self, definitions: list[Definition], rows: dict[str, list[Row]]) -> None:
        """Move each definition below the row of the line that first calls it; an empty row keeps its place."""
        row_of = {(path, row.lines[0].number): row for path, found in rows.items() for row in found}
        moved = []
        for definition, call in first_calls(self.trace, definitions).items():
            path, line = call.place
            _, last = self.outline.statement.get(call.place, (line, line))
            below = row_of.get((path, self.standing_rows[path].get(last, last)))
            own = [row for row in rows[definition.path] if row.lines and definition.first <= row.lines[0].number]
            own = [row for row in own if row.lines[0].number <= definition.last]
            if below is not None and own:
                link = self.link(path, line) or Markup("")
                block = Block(f"B{own[0].id}", definition.name, call.step, own, link, line)
                start = rows[definition.path].index(own[0])
                home = Row(f"H{own[0].id}", own[0].at, [], home=block.id)
                rows[definition.path][start : start + len(own)] = [home]
                moved.append((below, block))
        for below, block in moved:
            below.blocks.append(block)

    def rows(self, path: str) -> list[Row]:
        """All rows of a file, in its order."""
        hidden = self.trace.hidden_lines[path]
        prints = self._prints_by_last_line(path)
        result: list[Row] = []
        line, count = 1, len(self.code[path])
        while line <= count:
            first, last = self.outline.statement.get((path, line), (line, line))
            says = self.groups.get((path, first))
            numbers = range(line, (last if says else line) + 1)
            shown = [number for number in numbers if number not in hidden]
            steps = [self.first_step[path, number] for number in numbers if (path, number) in self.first_step]
            if shown:
                at = min(steps, default=None)
                row = Row(self.id(path, shown[0]), at, [self._line(path, number) for number in shown])
                if says:
                    row.said = self.said[path, first]
                row.callers = [(self.link(*place) or Markup(""), place[1]) for place in self._callers(path, line)]
                result.append(row)
                for number in numbers:
                    if number != shown[0]:
                        self.standing_rows[path][number] = shown[0]
            elif result:
                for number in numbers:
                    self.standing_rows[path][number] = result[-1].lines[0].number
            for place in prints.get(numbers[-1], []):
                if result and not hidden.intersection(range(place[1], numbers[-1] + 1)):
                    self._add_outputs(result[-1], place)
            line = numbers[-1] + 1
        self._place_in_time(path, result)
        return result

    def _place_in_time(self, path: str, rows: list[Row]) -> None:
        """Give a row that is never executed its step, at which it appears in animate mode.

        Comments, decorators and blank lines appear with what follows them, other lines with what comes before them. A
        function that the trace never enters appears when it is first called, other code of its module at the end. What
        stands above the first executed line is there from the start.
        """
        source = self.trace.files[path].split("\n")
        texts = [source[row.lines[0].number - 1] for row in rows]
        end = len(self.trace.steps) - 1
        before, begun = 0, False
        for row, text in zip(rows, texts, strict=True):
            begun = begun or row.at is not None
            if row.at is None and not _introduces(text):
                if begun and text[:1] not in " \t)":
                    before = self._first_call((path, row.lines[0].number), default=end)
                row.at = before
            before = before if row.at is None else row.at
        after = end
        for row in reversed(rows):
            after = row.at = after if row.at is None else row.at

    def _first_call(self, definition: Place, default: int) -> int:
        """The first step at a line that mentions the function defined there."""
        steps = []
        for path, line in self.outline.callers(definition):
            first, last = self.outline.statement.get((path, line), (line, line))
            steps += [self.first_step.get((path, number), default) for number in range(first, last + 1)]
        return min(steps, default=default)

    def _line(self, path: str, number: int) -> Line:
        source = self.trace.files[path].split("\n")[number - 1]
        executed = (path, number) in self.first_step
        address = f"?source={path}&line={number}#{self.id(path, number)}" if executed else None
        return Line(number, self.code[path][number - 1], len(source) - len(source.lstrip()), address)

    def _said(self, path: str, line: int, number: int) -> Iterator[Said]:
        step = self.trace.steps[number]
        parts = animated_parts(step)
        if parts <= 1:
            notes = all(item.type == "note" for item in step.renderings)
            html = Markup("\n").join(self.renderer.render(step.renderings, (path, line) in self.outline.shared))
            yield Said(html, number, notes)
            return
        part = -1
        for item in step.renderings:
            part += item.animate
            html = Markup("\n").join(self.renderer.render([item], joined=False))
            yield Said(html, number + max(part, 0) / parts, item.type == "note")

    def _callers(self, path: str, line: int) -> list[Place]:
        if (path, line) not in self.outline.definitions.values():
            return []
        hidden = self.trace.hidden_lines
        return [(caller, at) for caller, at in self.outline.callers((path, line)) if at not in hidden[caller]]

    # The log

    def _prints_by_last_line(self, path: str) -> dict[int, list[Place]]:
        """The prints of a file by the last line of their statement, under which their outputs go."""
        found: dict[int, list[Place]] = {}
        for place in sorted([*self.log.outputs, *self.log.alike] if self.log else []):
            if place[0] == path:
                found.setdefault(self.outline.statement.get(place, (0, place[1]))[1], []).append(place)
        return found

    def _add_outputs(self, row: Row, place: Place) -> None:
        assert self.log is not None
        self.placed.add(place)
        outputs = self.log.outputs.get(place, [])
        if place in self.log.alike:
            row.remark = f"Its lines in the log look like those of line {self.log.alike[place][1]} and are shown there."
        elif not outputs and place in self.first_step:
            row.remark = "The log has no line of this print."
        row.outputs += self._by_rank(outputs)

    def _by_rank(self, outputs: list[Output]) -> list[OutputRow]:
        """One row a rank, in order of rank, each with its lines in order of the log."""
        rows: dict[int | None, OutputRow] = {}
        for output in outputs:
            text = (terminal_text(output.text), output.at, self.printed_at.get(output.at))
            colour = -1 if output.rank is None else output.rank % COLOURS
            rows.setdefault(output.rank, OutputRow(output.rank, colour, [])).texts.append(text)
        return sorted(rows.values(), key=lambda row: -1 if row.rank is None else row.rank)

    def unplaced(self) -> list[str]:
        """The lines of the log that stand under no print of the page."""
        if self.log is None:
            return []
        hidden = [out.text for place, outs in self.log.outputs.items() if place not in self.placed for out in outs]
        return hidden + self.log.other

    # The table of contents

    def contents(self) -> list[Section]:
        """Main's own headings and the functions it calls, in order of execution; below each, what it leads through."""
        sections: list[Section] = []
        known: dict[object, Section] = {}
        executing = {(step.here.path, step.here.function) for step in self.trace.steps}
        for step in self.trace.steps:
            frames = [frame for frame in step.stack if (frame.path, frame.function) in executing]
            section = self._function(known, sections, frames[1].path, frames[1].function) if len(frames) > 1 else None
            if section is not None and len(frames) > 2:
                self._function(known, section.parts, frames[2].path, frames[2].function)
            for rendering in step.renderings:
                for level, title in self.renderer.headings(rendering):
                    link = self.link(step.here.path, step.here.line)
                    if link is None or (link, title) in known:
                        continue
                    entry = known[link, title] = Section(title, False, link, is_main=section is None)
                    if section is None:
                        sections.append(entry)
                    elif section.is_code and len(frames) == 2:
                        section.title, section.is_code = title, False
                    elif level <= 3 and len(frames) == 2:
                        section.parts.append(entry)
        return sections

    def _function(self, known: dict, siblings: list[Section], path: str, name: str) -> Section | None:
        place = self.outline.definitions.get(f"{path}:{name}")
        link = self.link(*place) if place else None
        if link is None:
            return None
        if (path, name) not in known:
            known[path, name] = Section(name, True, link)
            siblings.append(known[path, name])
        return known[path, name]

    def style(self) -> str:
        """The classes for styles that renderings ask for."""
        return "".join(
            f".{name}{{{rules};max-width:100%}}.{name}>:where(img,video){{width:inherit}}"
            for rules, name in self.renderer.styles.items()
        )


def _introduces(text: str) -> bool:
    """Whether a line of source belongs to what follows it."""
    return not text.strip() or text.lstrip().startswith(("#", "@"))


def _split_preamble(rows: list[Row], heads: list[int]) -> tuple[list[Row], list[Row]]:
    """The docstring, imports and settings at the top of a file, which the page folds, and the rest, which begins with
    the definition that is first executed; `heads` are the first lines of all definitions."""
    first = next((index for index, row in enumerate(rows) if any(line.address for line in row.lines)), 0)
    head = max((head for head in heads if rows and head <= rows[first].lines[0].number), default=None)
    while head is not None and first and rows[first - 1].lines[0].number >= head:
        first -= 1
    return rows[:first], rows[first:]
