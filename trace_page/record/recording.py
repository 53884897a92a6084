"""The recording: what every rank held at every line of its program, and which line printed what.

A recording is one JSON object (strict JSON: no NaN, no Infinity), written by `trace_page.record`:

    {"version": 1,
     "module": "lecture_07",
     "files": {"lecture_07.py": "<sha256>"},        the sources that lines refer to, as they were run
     "environment": {"python": "3.11.7", "torch": "2.13.0", "platform": "Linux x86_64",
                     "backends": ["gloo"], "devices": ["cpu"]},
     "values": [VALUE, …],                          every distinct value once; INDEX below is an index into this list
     "calls": [CALL, …],                            the calls of torch.multiprocessing.spawn, in order
     "prints": [{"path", "line", "call", "text"}]}  printed by the parent process; "call": how many calls it had made

    CALL  {"function": "all_reduce", "path": "lecture_07.py", "first_line": 40, "world_size": 4,
           "caller": {"path", "line", "function"} or null,  who started it, above helpers that got the function
           "ranks": [{"steps": [STEP, …], "prints": [PRINT, …]}, …]}
    STEP  {"line": 44, "last_line": 45,             the statement executed: a compound statement counts by its header
           "changed": {"name": INDEX, …},           local variables that it set or changed, and their values afterwards
           "deleted": ["name", …],                  absent if empty, as is
           "communications": [{"operation": "send", "tensors": [{"expression": "x", "role": "input",
                               "before": INDEX, "after": INDEX or null}, …],
                               "reduce_op", "peer", "root", "asynchronous"}, …]}
    PRINT {"step": 7, "line": 44, "text": "…"}      a line of stdout, and the step that printed it

Step 0 is the call itself: its line is that of `def`, and it sets the arguments. Paths are relative to the directory in
which the program ran. The role of a tensor is "input", "output" or "both" (in place); `peer` is the other rank of a
send or a receive, `root` the root of a rooted collective, `reduce_op` for example "SUM". An operation that has only
been started (`asynchronous`) has null for `after`. What a tensor of torch.empty holds until it is filled is arbitrary.

    VALUE null, true, 12, 0.5, "text"               as they are
          {"type": "float", "value": "nan"}        a float that JSON has not: nan, inf or -inf
          {"type": "str", "length": 999, "first": "…"}                              a long string
          {"type": "torch.Tensor", "shape": [2, 2], "dtype": "float32", "device": "cpu", …}
              … "values": [1.5, "nan", …]           all elements in row-major order: at most WHOLE_TENSOR of them
              … "first": […], "mean": m, "norm": n  a larger one; mean and norm have 7 significant digits, and are
                                                    absent where a number has more parts than one: complex
              … neither                             more than READ_TENSOR elements: the content was not read
              … "grad": VALUE                       a leaf that takes a gradient, for example a parameter
          {"type": "list", "length": 99, "items": [VALUE, …]}                       at most MAX_ITEMS of them;
          {"type": "dict", "length": 2, "items": [["key", VALUE], …]}               none deeper than MAX_DEPTH
          {"type": "torch.device", "repr": "device(type='cpu')"}                    anything else; "repr" may be absent
          {"type": "…", "error": "RuntimeError: …"}                                 what could not be read, and why

Elements of a float32 tensor are written with the fewest digits that give back the same float32.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1
WHOLE_TENSOR = 64
READ_TENSOR = 2**20
FIRST_ELEMENTS = 8
MAX_ITEMS = 16
MAX_DEPTH = 4
MAX_TEXT = 200

Value = None | bool | int | float | str | dict[str, Any]
"""A VALUE as described above."""


@dataclass
class TensorArgument:
    """A tensor (or list of tensors) given to a communicating function, with what it held before and after."""

    expression: str
    role: str
    before: Value
    after: Value = None


@dataclass
class Communication:
    """A call of a communicating function of torch.distributed."""

    operation: str
    tensors: list[TensorArgument]
    reduce_op: str | None = None
    peer: int | None = None
    root: int | None = None
    asynchronous: bool = False

    @property
    def inputs(self) -> dict[str, Value]:
        """What the rank contributed: expression → value before."""
        return {tensor.expression: tensor.before for tensor in self.tensors if tensor.role != "output"}

    @property
    def outputs(self) -> dict[str, Value]:
        """What the rank received: expression → value after."""
        return {tensor.expression: tensor.after for tensor in self.tensors if tensor.role != "input"}


@dataclass
class Step:
    """A statement that a rank has executed, and what it did to the local variables."""

    line: int
    last_line: int
    changed: dict[str, Value] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    communications: list[Communication] = field(default_factory=list)


@dataclass
class Print:
    """A line that a rank printed, and the step (index and line) that printed it."""

    step: int
    line: int
    text: str


@dataclass
class Rank:
    """One rank's execution of a per-rank program."""

    steps: list[Step]
    prints: list[Print]

    def values_after(self, step: int) -> dict[str, Value]:
        """The local variables once step `step` has been executed; -1 gives those before the call: none."""
        values: dict[str, Value] = {}
        for executed in self.steps[: step + 1]:
            values.update(executed.changed)
            for name in executed.deleted:
                values.pop(name, None)
        return values


@dataclass
class Location:
    """A line of the program, and the function that it is in."""

    path: str
    line: int
    function: str


@dataclass
class Call:
    """A call of torch.multiprocessing.spawn: one per-rank program on `world_size` ranks."""

    function: str
    path: str
    first_line: int
    world_size: int
    caller: Location | None
    ranks: list[Rank]


@dataclass
class ParentPrint:
    """A line that the parent process printed after it had made `call` calls."""

    path: str | None
    line: int | None
    call: int
    text: str


@dataclass
class Recording:
    """A recorded run of a program."""

    module: str
    files: dict[str, str]
    environment: dict[str, Any]
    calls: list[Call]
    prints: list[ParentPrint]

    def stale_files(self, directory: Path) -> list[str]:
        """The recorded program's files that are missing in `directory` or differ from those that were run."""
        return [path for path, digest in self.files.items() if source_digest(directory / path) != digest]


def source_digest(path: Path) -> str | None:
    """The sha256 of a file, with line ends as on Unix; None if there is no such file."""
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def save_recording(recording: Recording, path: Path) -> None:
    """Write `recording` to `path`; a file that is there is replaced once the new one is complete."""
    values: dict[str, int] = {}

    def index_of(value: Value) -> int:
        return values.setdefault(_dumps(value), len(values))

    data = {
        "version": VERSION,
        "module": recording.module,
        "files": recording.files,
        "environment": recording.environment,
        "calls": [
            {
                "function": call.function,
                "path": call.path,
                "first_line": call.first_line,
                "world_size": call.world_size,
                "caller": vars(call.caller) if call.caller else None,
                "ranks": [
                    {
                        "steps": [_step_to_json(step, index_of) for step in rank.steps],
                        "prints": [vars(printed) for printed in rank.prints],
                    }
                    for rank in call.ranks
                ],
            }
            for call in recording.calls
        ],
        "prints": [vars(printed) for printed in recording.prints],
    }
    head = _dumps(data)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # A line for each value, so that the file can be looked at.
        lines = [head[:-1] + ',"values":[', ",\n".join(values), "]}", ""]
        temporary.write_text("\n".join(lines), encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _dumps(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _step_to_json(step: Step, index_of: Callable[[Value], int]) -> dict[str, Any]:
    data: dict[str, Any] = {"line": step.line, "last_line": step.last_line}
    data["changed"] = {name: index_of(value) for name, value in step.changed.items()}
    if step.deleted:
        data["deleted"] = step.deleted
    if step.communications:
        data["communications"] = [
            {
                "operation": communication.operation,
                "tensors": [
                    {
                        "expression": tensor.expression,
                        "role": tensor.role,
                        "before": index_of(tensor.before),
                        "after": None if communication.asynchronous else index_of(tensor.after),
                    }
                    for tensor in communication.tensors
                ],
                "reduce_op": communication.reduce_op,
                "peer": communication.peer,
                "root": communication.root,
                "asynchronous": communication.asynchronous,
            }
            for communication in step.communications
        ]
    return data
