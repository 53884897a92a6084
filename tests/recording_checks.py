"""Reading recordings in tests."""

from collections.abc import Iterator

import numpy as np

from trace_page.record.recording import Call, Communication, Recording, Step, Value


def array(value: Value) -> np.ndarray:
    """The whole tensor that a recorded value shows; a list of tensors is joined along a new first dimension."""
    if "items" in value:
        return np.stack([array(item) for item in value["items"]])
    return np.array([float(element) for element in value["values"]]).reshape(value["shape"])


def call_of(recording: Recording, function: str) -> Call:
    """The only call of a per-rank program."""
    (call,) = [call for call in recording.calls if call.function == function]
    return call


def communications(call: Call, operation: str) -> Iterator[list[Communication]]:
    """For each time the ranks called `operation` together: what each rank noted of it."""
    noted = [[item for step in rank.steps for item in step.communications] for rank in call.ranks]
    return zip(*[[item for item in items if item.operation == operation] for items in noted], strict=True)


def steps_at(steps: list[Step], line: int) -> list[Step]:
    """The steps that executed the statement which begins at `line`."""
    return [step for step in steps if step.line == line]


def line_of(source: str, text: str, occurrence: int = 0) -> int:
    """The number of the line that contains `text`."""
    return [number for number, line in enumerate(source.splitlines(), 1) if text in line][occurrence]
