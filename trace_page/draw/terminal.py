"""A program's output as a terminal would leave it: colours shown, other control codes left out, lines overwritten."""

import re

from markupsafe import Markup, escape

ESCAPE = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
"""A control sequence (its parameters and its last letter), a title set, or another escape."""

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def terminal_text(text: str) -> Markup:
    """`text` as HTML: colours as classes a0 to a7, bold as ab."""
    return Markup("\n").join(_line(line) for line in text.split("\n"))


def _line(line: str) -> Markup:
    cells: list[tuple[str, str]] = []
    style, column, index = "", 0, 0
    while index < len(line):
        if found := ESCAPE.match(line, index):
            if found[2] == "m":
                style = _style(style, found[1])
            elif found[2] == "K":
                del cells[column:]
            index = found.end()
            continue
        character = line[index]
        index += 1
        if character == "\r":
            column = 0
        elif not CONTROL.match(character):
            cells[column : column + 1] = [(character, style)]
            column += 1
    return _spans(cells)


def _style(style: str, parameters: str) -> str:
    """The classes after a Select Graphic Rendition sequence."""
    classes = set(style.split())
    codes = iter(parameters.split(";"))
    for text in codes:
        code = int(text) if text.isdigit() else 0
        if code == 0:
            classes = set()
        elif code == 1:
            classes.add("ab")
        elif code == 22:
            classes.discard("ab")
        elif 30 <= code <= 37 or 90 <= code <= 97 or code == 39:
            classes = {name for name in classes if name == "ab"} | ({f"a{code % 10}"} if code != 39 else set())
        elif code in (38, 48):  # 256 colours or RGB: left out, with what belongs to them
            for _ in range({"5": 1, "2": 3}.get(next(codes, ""), 0)):
                next(codes, None)
    return " ".join(sorted(classes))


def _spans(cells: list[tuple[str, str]]) -> Markup:
    html, start = Markup(""), 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end][1] != cells[start][1]:
            text = "".join(character for character, _ in cells[start:end])
            style = cells[start][1]
            html += Markup('<span class="{}">{}</span>').format(style, text) if style else escape(text)
            start = end
    return html
