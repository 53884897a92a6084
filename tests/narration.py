"""What the lecture tells: its texts, links and pictures, read from the source."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "lecture_07.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Told:
    """A call that shows something: text, note, link, article_link or image."""

    function: str
    line: int
    kind: str
    content: str
    """The text, the link's title or the picture's path."""
    urls: tuple[str, ...] = ()
    width: int | None = None


def told_by(function: ast.FunctionDef) -> list[Told]:
    """What a function of the lecture shows, in order."""
    told = []
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        kind, args = node.func.id, [ast.literal_eval(arg) for arg in node.args if isinstance(arg, ast.Constant)]
        options = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
        if kind in ("text", "note"):
            urls = tuple(url for _, url in MARKDOWN_LINK.findall(args[0]))
            told.append(Told(function.name, node.lineno, kind, args[0], urls))
        elif kind in ("link", "article_link", "post_link", "video_link"):
            title = options.get("title", kind.removesuffix("_link"))
            told.append(Told(function.name, node.lineno, "link", title, (options.get("url") or args[0],)))
        elif kind == "image":
            told.append(Told(function.name, node.lineno, kind, args[0], width=options["width"]))
    return sorted(told, key=lambda each: each.line)


TOLD = [told for node in TREE.body if isinstance(node, ast.FunctionDef) for told in told_by(node)]
TEXTS = [told for told in TOLD if told.kind in ("text", "note")]


def sentence(*patterns: str) -> re.Match:
    """The only text that holds the first pattern, matched against all of them at once."""
    (found,) = [told.content for told in TEXTS if re.search(patterns[0], told.content)]
    match = re.search(".*?".join(patterns), found)
    assert match, f"{patterns} are not in: {found}"
    return match


def numbers(*patterns: str) -> list[float]:
    """The groups of a sentence, as numbers; a space may stand between thousands."""
    return [float(group.replace(" ", "")) for group in sentence(*patterns).groups()]


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose first cell is `heading`, a list for each row below the heading."""
    (found,) = [told.content for told in TEXTS if told.content.startswith(f"| {heading} |")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.split("\n")[2:]]


def demo_options(program: str) -> dict[str, int]:
    """The sizes with which the lecture spawns a per-rank program."""
    (call,) = [
        node for node in ast.walk(TREE)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "spawn" and ast.unparse(node.args[0]) == program
    ]  # fmt: skip
    return {option.arg: option.value.value for option in call.keywords if isinstance(option.value, ast.Constant)}
