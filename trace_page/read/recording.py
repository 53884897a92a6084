"""Reads a recording, whose form `record/recording.py` describes, and checks it, so that the rest can rely on it."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..record.recording import (
    VERSION,
    Call,
    Communication,
    Location,
    ParentPrint,
    Print,
    Rank,
    Recording,
    Step,
    TensorArgument,
    Value,
)
from .checked import EntryError, convert, read_json

Line = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]


class _Versioned(Struct):
    version: int


class _Environment(Struct):
    python: str
    torch: str
    platform: str
    backends: list[str]
    devices: list[str]


class _Tensor(Struct):
    expression: str
    role: Literal["input", "output", "both"]
    before: int
    after: int | None = None


class _Communication(Struct):
    operation: str
    tensors: list[_Tensor]
    asynchronous: bool
    reduce_op: str | None = None
    peer: int | None = None
    root: int | None = None


class _Step(Struct):
    line: Line
    last_line: Line
    changed: dict[str, int]
    deleted: list[str] = []
    communications: list[_Communication] = []


class _Print(Struct):
    step: Count
    line: Line
    text: str


class _Rank(Struct):
    steps: list[_Step]
    prints: list[_Print]


class _Location(Struct):
    path: str
    line: Line
    function: str


class _Call(Struct):
    function: str
    path: str
    first_line: Line
    world_size: Annotated[int, Meta(ge=1)]
    ranks: list[_Rank]
    caller: _Location | None = None


class _ParentPrint(Struct):
    call: Count
    text: str
    path: str | None = None
    line: int | None = None


class _Recording(Struct):
    version: int
    module: str
    files: dict[str, str]
    environment: _Environment
    values: list[Any]
    calls: list[_Call]
    prints: list[_ParentPrint]


class _TensorValue(Struct):
    type: str
    shape: list[int]
    dtype: str
    device: str
    values: list[bool | int | float | str] = []
    first: list[bool | int | float | str] = []
    grad: Any = None


class _Container(Struct):
    type: str
    length: Count
    items: list[Any] = []


class _Other(Struct):
    type: str


def load_recording(path: Path) -> Recording:
    """Read and check a recording. Equal values are one object.

    Raises ValueError that names the file, the place in it and what is wrong there, FileNotFoundError without the file.
    """
    content = path.read_bytes()
    try:
        version = read_json(content, _Versioned, "recording").version
        if version != VERSION:
            raise EntryError(f"recording.version is {version}; this program reads version {VERSION}: record again")
        return _recording(read_json(content, _Recording, "recording"))
    except EntryError as error:
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is not a recording: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _recording(data: _Recording) -> Recording:
    for index, value in enumerate(data.values):
        _check_value(value, f"recording.values[{index}]")
    calls = [_call(call, data.values, f"recording.calls[{index}]") for index, call in enumerate(data.calls)]
    environment = {name: getattr(data.environment, name) for name in data.environment.__struct_fields__}
    prints = [ParentPrint(item.path, item.line, item.call, item.text) for item in data.prints]
    return Recording(data.module, data.files, environment, calls, prints)


def _call(data: _Call, values: list[Value], where: str) -> Call:
    if len(data.ranks) != data.world_size:
        raise EntryError(f"{where} has {len(data.ranks)} ranks, its world size is {data.world_size}")
    ranks = [_rank(rank, values, f"{where}.ranks[{index}]") for index, rank in enumerate(data.ranks)]
    caller = Location(data.caller.path, data.caller.line, data.caller.function) if data.caller else None
    return Call(data.function, data.path, data.first_line, data.world_size, caller, ranks)


def _rank(data: _Rank, values: list[Value], where: str) -> Rank:
    if not data.steps:
        raise EntryError(f"{where}.steps is empty, and step 0 should be the call itself")
    steps = [_step(step, values, f"{where}.steps[{index}]") for index, step in enumerate(data.steps)]
    for index, item in enumerate(data.prints):
        if item.step >= len(steps) or steps[item.step].line != item.line:
            raise EntryError(f"{where}.prints[{index}]: step {item.step} is not a step at line {item.line}")
    return Rank(steps, [Print(item.step, item.line, item.text) for item in data.prints])


def _step(data: _Step, values: list[Value], where: str) -> Step:
    if data.last_line < data.line:
        raise EntryError(f"{where}.last_line should be at least {data.line}, is {data.last_line}")

    def value_at(index: int, entry: str) -> Value:
        if not 0 <= index < len(values):
            raise EntryError(f"{where}.{entry} refers to value {index}, there are {len(values)}")
        return values[index]

    communications = []
    for number, item in enumerate(data.communications):
        tensors = []
        for place, tensor in enumerate(item.tensors):
            entry = f"communications[{number}].tensors[{place}]"
            before = value_at(tensor.before, f"{entry}.before")
            after = None if tensor.after is None else value_at(tensor.after, f"{entry}.after")
            tensors.append(TensorArgument(tensor.expression, tensor.role, before, after))
        communications.append(
            Communication(item.operation, tensors, item.reduce_op, item.peer, item.root, item.asynchronous)
        )
    changed = {name: value_at(index, f"changed.{name}") for name, index in data.changed.items()}
    return Step(data.line, data.last_line, changed, data.deleted, communications)


def _check_value(value: Value, where: str) -> None:
    """Check that a value has the form that the recording's description gives."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if isinstance(value, dict) and "shape" in value:
        if convert(value, _TensorValue, where).grad is not None:
            _check_value(value["grad"], f"{where}.grad")
    elif isinstance(value, dict) and ("length" in value or "items" in value):
        items = convert(value, _Container, where).items
        pairs = any(isinstance(item, list) for item in items)
        for index, item in enumerate(items):
            at = f"{where}.items[{index}]"
            if pairs:
                if len(convert(item, list[Any], at)) != 2 or not isinstance(item[0], str):
                    raise EntryError(f"{at} should be a key and a value, is {str(item)[:60]!r}")
                _check_value(item[1], f"{at}[1]")
            else:
                _check_value(item, at)
    else:
        convert(value, _Other, where)
