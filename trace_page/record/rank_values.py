"""What a rank notes of its variables: small values whole, large ones as a summary (see `recording.py`)."""

import dataclasses
import enum
import math
import re
import types
import zlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from trace_page.record.recording import FIRST_ELEMENTS, MAX_DEPTH, MAX_ITEMS, MAX_TEXT, READ_TENSOR, WHOLE_TENSOR, Value

ADDRESS = re.compile(r"\s*(?:\bat )?\b0x[0-9a-fA-F]+")
NOT_IN_GROUP = getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", None)
"""What `new_group` returns to a rank outside the group: an int, known by its identity."""

LARGEST_INT = 2**53
"""Beyond it a reader whose numbers are doubles would round."""


def type_name(value: object) -> str:
    """The full name of the type of `value`, for builtins without the module."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class ValueReader:
    """Turns the objects that a rank holds into values of a recording.

    A tensor that holds what it held when it was last read gives the same value object, and is not summarised again.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[tuple, Value]] = {}
        self._former: dict[int, tuple[tuple, Value]] = {}

    def start_over(self) -> None:
        """Time has passed: what a tensor holds has to be looked at again."""
        self._former, self._tensors = self._tensors, {}

    def read_now(self, value: object) -> Value:
        """`value` as it is now, also when it has been read since `start_over`."""
        kept = self._former, self._tensors
        self.start_over()
        try:
            return self.read(value)
        finally:
            self._former, self._tensors = kept

    def read(self, value: object, depth: int = 0) -> Value:
        """`value` as a value of a recording."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if value is NOT_IN_GROUP:
                return {"type": type_name(value), "repr": "not in this group"}
            return value if abs(value) <= LARGEST_INT else {"type": "int", "repr": _shortened(str(value))}
        if kind is float:
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        if kind is str:
            whole = len(value) <= MAX_TEXT
            return _encodable(value) if whole else {"type": "str", "length": len(value), "first": _shortened(value)}
        try:
            if isinstance(value, torch.Tensor):
                return self._read_tensor(value)
            if isinstance(value, np.ndarray):
                return self._read_array(value)
            return self._read_container(value, depth)
        except Exception as error:  # a value that cannot be read must not end the run
            return {"type": type_name(value), "error": _shortened(f"{type(error).__name__}: {error}")}

    def _read_tensor(self, tensor: torch.Tensor) -> Value:
        if id(tensor) in self._tensors:
            return self._tensors[id(tensor)][1]
        content = array_of(tensor) if tensor.numel() <= READ_TENSOR else None
        takes_gradient = isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)
        gradient = self.read(tensor.grad) if takes_gradient else None
        # Not the version counter: a collective writes into a tensor without counting.
        layout = (type(tensor), tensor.shape, tensor.dtype, tensor.device)
        state = (layout, _checksum(content), takes_gradient, id(gradient))
        former = self._former.get(id(tensor))
        if former is not None and former[0] == state:
            value = former[1]
        else:
            value = {
                "type": type_name(tensor),
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "device": str(tensor.device),
                **_summary(content),
            }
            if takes_gradient:
                value["grad"] = gradient
        self._tensors[id(tensor)] = (state, value)
        return value

    def _read_array(self, array: np.ndarray) -> Value:
        content = array if array.size <= READ_TENSOR else None
        head = {"type": type_name(array), "shape": list(array.shape), "dtype": str(array.dtype), "device": "cpu"}
        return head | _summary(content)

    def _read_container(self, value: object, depth: int) -> Value:
        name = type_name(value)
        if isinstance(value, dist.ProcessGroup):
            ranks = ", ".join(map(str, dist.get_process_group_ranks(value)))
            return {"type": name, "repr": f"process group of ranks {ranks}"}
        if isinstance(value, np.generic):
            return self.read(value.item(), depth)
        if isinstance(value, torch.nn.Module):
            value = dict(value.named_parameters())
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, (list, tuple)):
            items: list[Any] = [self.read(item, depth + 1) for item in value[:MAX_ITEMS]] if depth < MAX_DEPTH else []
        elif isinstance(value, dict):
            pairs = list(value.items())[:MAX_ITEMS] if depth < MAX_DEPTH else []
            items = [[_shortened(_key(key)), self.read(item, depth + 1)] for key, item in pairs]
        else:
            return _other(value)
        return {"type": name, "length": len(value)} | ({"items": items} if depth < MAX_DEPTH else {})


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of `tensor` in row-major order; float types that numpy has not become float32."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy())


def _checksum(content: np.ndarray | None) -> int | None:
    return None if content is None else zlib.crc32(content.reshape(-1).view(np.uint8))


def _summary(content: np.ndarray | None) -> dict[str, Value]:
    if content is None:
        return {}
    flat = content.reshape(-1)
    if flat.size <= WHOLE_TENSOR:
        return {"values": [_element(element) for element in flat]}
    summary: dict[str, Value] = {"first": [_element(element) for element in flat[:FIRST_ELEMENTS]]}
    if flat.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            wide = flat.astype(np.float64)
            # Not np.linalg.norm: its threads would fight with those of the other ranks over the cores.
            summary |= {"mean": _rounded(wide.mean()), "norm": _rounded(np.sqrt(np.square(wide).sum()))}
    return summary


def _element(element: np.generic) -> bool | int | float | str:
    """One element: str() of a numpy float has the fewest digits that give it back."""
    if element.dtype.kind == "f":
        return float(str(element)) if np.isfinite(element) else str(element)
    return element.item() if element.dtype.kind in "biu" else str(element)


def _rounded(number: np.float64) -> float | str:
    return float(f"{number:.7g}") if np.isfinite(number) else str(number)


def _key(key: object) -> str:
    """How a key of a dict is written; of what may be of any size, only the type."""
    if isinstance(key, tuple) and len(key) <= MAX_ITEMS:
        return f"({', '.join(map(_key, key))}{',' if len(key) == 1 else ''})"
    return str(key) if isinstance(key, (str, int, float, bool, torch.device, torch.dtype)) else type_name(key)


def _other(value: object) -> Value:
    """The type, and for what is certain to be short also a repr: one that a program wrote itself may be of any size."""
    name = type_name(value)
    if isinstance(value, types.ModuleType):
        return {"type": name, "repr": value.__name__}
    if hasattr(value, "__qualname__"):  # a function or a class
        return {"type": name, "repr": _shortened(f"{value.__module__}.{value.__qualname__}")}
    if isinstance(value, (range, enum.Enum)) or not (hasattr(value, "__len__") or hasattr(value, "__dict__")):
        return {"type": name, "repr": _shortened(ADDRESS.sub("", repr(value)))}
    return {"type": name} | ({"length": len(value)} if hasattr(value, "__len__") else {})


def _encodable(text: str) -> str:
    """`text` without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shortened(text: str) -> str:
    return _encodable(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")
