"""The steps of the page: those of the trace, and inside a recorded per-rank program those of all ranks."""

from dataclasses import dataclass, field, replace

from ..record.recording import Call, Recording
from .alignment import Turn, align_call, invocations
from .merging import MergedStep, merge
from .trace import Frame, Step, Trace


@dataclass
class Course:
    """`trace` with the page's steps; `recorded`: for a step of a recorded program the index of the recorded call and
    each rank's turn; `traced`: for each step of the trace as edtrace wrote it the step of the page that shows it;
    `communications`: the steps at which something moves between ranks."""

    trace: Trace
    recorded: dict[int, tuple[int, tuple[Turn, ...]]] = field(default_factory=dict)
    traced: list[int] = field(default_factory=list)
    communications: list[int] = field(default_factory=list)


def join(trace: Trace, recording: Recording | None) -> Course:
    """The course of a lecture; without a recording it is that of the trace."""
    if recording is None:
        return Course(trace, {}, list(range(len(trace.steps))))
    inside = {}
    for index, numbers in invocations(trace, recording):
        program = _Program(trace, recording.calls[index], index, numbers)
        inside.update(dict.fromkeys(numbers, program))
    steps: list[Step] = []
    course = Course(trace)
    for number, step in enumerate(trace.steps):
        program = inside.get(number)
        if program is None:
            steps.append(step)
        else:
            program.reach(number, steps, course)
        course.traced.append(len(steps) - 1)
    course.trace = Trace(trace.files, trace.hidden_lines, tuple(steps))
    return course


class _Program:
    """One call of a per-rank program on its way into the course."""

    def __init__(self, trace: Trace, call: Call, index: int, numbers: list[int]) -> None:
        self.call, self.index, self.last = call, index, numbers[-1]
        self.above = trace.steps[numbers[0]].stack[:-1]
        self.waiting = merge(call, trace.files[call.path])
        at = {
            (rank, turn.first): place
            for place, merged in enumerate(self.waiting)
            for rank, turn in enumerate(merged.turns)
            if turn.first >= 0
        }
        rows = align_call(call, [trace.steps[number].here.line for number in numbers], trace.files[call.path])
        self.target = {}
        self.traced = {}
        for number, row in zip(numbers, rows, strict=True):
            places = [at[rank, turn.first] for rank, turn in enumerate(row) if turn.first >= 0]
            self.target[number] = min(places, default=-1)
            self.traced[number] = trace.steps[number]
        self.shown: list[int] = []

    def reach(self, number: int, steps: list[Step], course: Course) -> None:
        """Add the steps up to the traced step `number`; what that one says is said where its line is executed."""
        until = len(self.waiting) - 1 if number == self.last else self.target[number]
        for merged in self.waiting[len(self.shown) : until + 1]:
            self.shown.append(len(steps))
            course.recorded[len(steps)] = (self.index, merged.turns)
            if self._communicates(merged):
                course.communications.append(len(steps))
            steps.append(self._step(merged))
        if said := self.traced[number].renderings:
            place = self.shown[max(self.target[number], 0)]
            steps[place] = replace(steps[place], renderings=(*steps[place].renderings, *said))

    def _communicates(self, merged: MergedStep) -> bool:
        """Whether something is moved; at a barrier nothing is."""
        return any(
            item.operation != "barrier"
            for rank, turn in zip(self.call.ranks, merged.turns, strict=True)
            if turn.first >= 0
            for item in rank.steps[turn.first].communications
        )

    def _step(self, merged: MergedStep) -> Step:
        return Step((*self.above, Frame(self.call.path, merged.line, self.call.function)), {}, ())
