"""Reads JSON into types with msgspec, and says of what does not fit which entry is wrong and how."""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

KINDS = {
    "object": "an object",
    "array": "a list",
    "str": "a string",
    "int": "an integer",
    "bool": "true or false",
    "null": "null",
}


class EntryError(ValueError):
    """An entry of a JSON document is wrong; the message names the entry."""


def read_json(content: bytes, kind: type[T], root: str) -> T:
    """`content` as a `kind`. Raises EntryError, which calls the whole document `root`, and ValueError for no JSON."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise EntryError(_told(str(error), root)) from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def convert(data: object, kind: type[T], where: str) -> T:
    """What JSON has given at the entry `where` as a `kind`. Raises EntryError."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise EntryError(_told(str(error), where)) from None


def _told(message: str, root: str) -> str:
    """What msgspec says, with the entry first: `recording.calls[0].line should be an integer, is a string`."""
    message, _, path = message.partition(" - at `")
    entry = (root + path.rstrip("`").removeprefix("$")).lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(.+)`", message):
        return f"{entry} has no entry {missing[1]!r}".lstrip()
    if wrong := re.fullmatch(r"Expected `(.+)`, got `(.+)`", message):
        wanted = " or ".join(KINDS.get(kind, kind) for kind in wrong[1].split(" | "))
        return f"{entry} should be {wanted}, is {KINDS.get(wrong[2], wrong[2])}"
    return f"{entry}: {message}"
