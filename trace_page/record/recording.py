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


def load_recording(path: Path) -> Recording:
    """Read and check a recording. Equal values are one object.

    Raises ValueError that names the file, the place in it and what is wrong there, FileNotFoundError without the file.
    """
    content = path.read_bytes()
    try:
        data = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
        return _recording_from_json(_Node(data, "recording"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is not a recording: it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not strict JSON")


KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false"}


@dataclass(frozen=True)
class _Node:
    """A place in a JSON document, for error messages that name it."""

    data: Any
    where: str

    def get(self, key: str, kind: type, default: Any = ...) -> "_Node":  # noqa: ANN401
        """The entry `key`, which is of that kind; a default of None also allows null."""
        self.check(dict)
        if key not in self.data and default is ...:
            raise ValueError(f"{self.where} has no entry {key!r}")
        entry = _Node(self.data.get(key, default), f"{self.where}.{key}")
        return entry if entry.data is None and default is None else entry.check(kind)

    def check(self, kind: type) -> "_Node":
        # bool is an int to isinstance
        if not isinstance(self.data, kind) or (kind is int and isinstance(self.data, bool)):
            raise ValueError(f"{self.where} should be {KINDS[kind]}, is {str(self.data)[:60]!r}")
        return self

    def items(self) -> "list[_Node]":
        """The elements of a list."""
        return [_Node(item, f"{self.where}[{index}]") for index, item in enumerate(self.check(list).data)]

    def text(self, key: str) -> str:
        return self.get(key, str).data

    def count(self, key: str, least: int = 0) -> int:
        """The entry `key`, an integer of at least `least`."""
        entry = self.get(key, int)
        if entry.data < least:
            raise ValueError(f"{entry.where} should be at least {least}, is {entry.data}")
        return entry.data

    def strings(self, key: str) -> list[str]:
        """The entry `key`, a list of strings; absent means empty."""
        return [item.check(str).data for item in self.get(key, list, []).items()]


def _recording_from_json(node: _Node) -> Recording:
    version = node.get("version", int).data
    if version != VERSION:
        raise ValueError(f"recording.version is {version}; this program reads version {VERSION}: record again")
    values = [_check_value(item) for item in node.get("values", list).items()]

    def value_at(index: _Node) -> Value:
        if index.check(int).data not in range(len(values)):
            raise ValueError(f"{index.where} refers to value {index.data}, there are {len(values)}")
        return values[index.data]

    files = node.get("files", dict)
    environment = node.get("environment", dict)
    for key in ("python", "torch", "platform"):
        environment.text(key)
    for key in ("backends", "devices"):
        environment.get(key, list)
        environment.strings(key)
    return Recording(
        module=node.text("module"),
        files={path: files.text(path) for path in files.data},
        environment=environment.data,
        calls=[_call_from_json(call, value_at) for call in node.get("calls", list).items()],
        prints=[
            ParentPrint(
                path=printed.get("path", str, None).data,
                line=printed.get("line", int, None).data,
                call=printed.count("call"),
                text=printed.text("text"),
            )
            for printed in node.get("prints", list).items()
        ],
    )


def _call_from_json(node: _Node, value_at: Callable[[_Node], Value]) -> Call:
    caller = node.get("caller", dict, None)
    call = Call(
        function=node.text("function"),
        path=node.text("path"),
        first_line=node.count("first_line", 1),
        world_size=node.count("world_size", 1),
        caller=Location(caller.text("path"), caller.count("line", 1), caller.text("function")) if caller.data else None,
        ranks=[_rank_from_json(rank, value_at) for rank in node.get("ranks", list).items()],
    )
    if len(call.ranks) != call.world_size:
        raise ValueError(f"{node.where} has {len(call.ranks)} ranks, its world size is {call.world_size}")
    return call


def _rank_from_json(node: _Node, value_at: Callable[[_Node], Value]) -> Rank:
    steps = [_step_from_json(step, value_at) for step in node.get("steps", list).items()]
    if not steps:
        raise ValueError(f"{node.where}.steps is empty, and step 0 should be the call itself")
    prints = []
    for item in node.get("prints", list).items():
        printed = Print(step=item.count("step"), line=item.count("line", 1), text=item.text("text"))
        if printed.step >= len(steps) or steps[printed.step].line != printed.line:
            raise ValueError(f"{item.where}: step {printed.step} is not a step at line {printed.line}")
        prints.append(printed)
    return Rank(steps, prints)


def _step_from_json(node: _Node, value_at: Callable[[_Node], Value]) -> Step:
    changed = node.get("changed", dict)
    communications = node.get("communications", list, [])
    line = node.count("line", 1)
    return Step(
        line=line,
        last_line=node.count("last_line", line),
        changed={name: value_at(changed.get(name, int)) for name in changed.data},
        deleted=node.strings("deleted"),
        communications=[_communication_from_json(item, value_at) for item in communications.items()],
    )


def _communication_from_json(node: _Node, value_at: Callable[[_Node], Value]) -> Communication:
    tensors = []
    for item in node.get("tensors", list).items():
        after = item.get("after", int, None)
        role = item.text("role")
        if role not in ("input", "output", "both"):
            raise ValueError(f"{item.where}.role should be input, output or both, is {role!r}")
        before = value_at(item.get("before", int))
        tensors.append(
            TensorArgument(item.text("expression"), role, before, None if after.data is None else value_at(after))
        )
    return Communication(
        operation=node.text("operation"),
        tensors=tensors,
        reduce_op=node.get("reduce_op", str, None).data,
        peer=node.get("peer", int, None).data,
        root=node.get("root", int, None).data,
        asynchronous=node.get("asynchronous", bool).data,
    )


def _check_value(node: _Node) -> Value:
    """The value at `node`, which has the form that this module's description gives."""
    if node.data is None or isinstance(node.data, (bool, int, float, str)):
        return node.data
    node.text("type")
    if "shape" in node.data:
        for size in node.get("shape", list).items():
            size.check(int)
        node.text("dtype")
        node.text("device")
        for key in ("values", "first"):
            for element in node.get(key, list, []).items():
                if not isinstance(element.data, (bool, int, float, str)):
                    raise ValueError(f"{element.where} should be a number, is {str(element.data)[:60]!r}")
        if node.data.get("grad") is not None:
            _check_value(node.get("grad", dict))
    elif "length" in node.data or "items" in node.data:
        node.count("length")
        items = node.get("items", list, []).items()
        pairs = any(isinstance(item.data, list) for item in items)
        for item in items:
            pair = pairs and item.check(list)
            if pair and (len(item.data) != 2 or not isinstance(item.data[0], str)):
                raise ValueError(f"{item.where} should be a key and a value, is {str(item.data)[:60]!r}")
            _check_value(_Node(item.data[1], f"{item.where}[1]") if pair else item)
    return node.data
