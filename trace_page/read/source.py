"""Source files as coloured lines: directives stripped, names of functions linked to their definitions."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from ..errors import InputError

Place = tuple[str, int]

DIRECTIVES = re.compile(r"\s*@(inspect|clear|stepover|hide|animate)\b.*", re.DOTALL)

CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String.Interpol, ""),
    (String, "s"),
    (Number, "m"),
    (Operator.Word, "k"),
    (Keyword, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "d"),
    (Name.Builtin, "b"),
)


@dataclass
class Outline:
    """What the syntax tree of all files tells.

    `definitions` maps each top-level function or class, as `path:name`, to its line; `uses` maps the place and column
    of each mention of one to its definition; `statement` maps each line of a simple statement to that statement's
    first and last line; `shared` are lines with several expressions side by side.
    """

    definitions: dict[str, Place] = field(default_factory=dict)
    uses: dict[tuple[str, int, int], Place] = field(default_factory=dict)
    statement: dict[Place, tuple[int, int]] = field(default_factory=dict)
    shared: set[Place] = field(default_factory=set)

    def callers(self, definition: Place) -> list[Place]:
        """The lines that mention the function defined at `definition`, but for its imports and its own body's."""
        return sorted({(path, line) for (path, line, _), target in self.uses.items() if target == definition})


def outline(files: Mapping[str, str]) -> Outline:
    """Read `files` (path → source). Raises InputError when this Python cannot parse one."""
    result = Outline()
    trees = {}
    for path, source in files.items():
        try:
            trees[path] = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise InputError(f"{path} cannot be parsed by this Python: {error}") from None
        for node in trees[path].body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                result.definitions[f"{path}:{node.name}"] = (path, node.lineno)
    modules = {path.removesuffix(".py").replace("\\", "/").replace("/", "."): path for path in files}
    for path, tree in trees.items():
        _read(path, tree, files[path].split("\n"), modules, result)
    return result


def _read(path: str, tree: ast.Module, lines: list[str], modules: dict[str, str], result: Outline) -> None:
    known = {name.split(":", 1)[1]: place for name, place in result.definitions.items() if place[0] == path}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                if place := result.definitions.get(f"{modules[node.module]}:{alias.name}"):
                    known[alias.asname or alias.name] = place
    starts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
            # The syntax tree counts bytes of UTF-8, the page characters.
            column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
            result.uses[path, node.lineno, column] = known[node.id]
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            end = node.end_lineno or node.lineno
            for line in range(node.lineno, end + 1):
                first, last = result.statement.get((path, line), (node.lineno, end))
                result.statement[path, line] = (min(first, node.lineno), max(last, end))
            if node.lineno in starts or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Tuple)):
                result.shared.add((path, node.lineno))
            starts.add(node.lineno)


def code_lines(path: str, source: str, uses: Mapping[tuple[str, int, int], str]) -> list[Markup]:
    """The lines of `source` as HTML. The whole file is tokenised at once, so that strings over several lines colour
    right. `uses` maps (path, line, column) of a name to the HTML attributes of its link."""
    lines: list[list[tuple[str, str, str]]] = [[]]
    column = 0
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        if kind in Comment:
            text = _without_directives(text)
            if not text:
                _strip_end(lines[-1])
        css = next((css for group, css in CLASSES if kind in group), "")
        for index, piece in enumerate(text.split("\n")):
            if index:
                lines.append([])
                column = 0
            if piece:
                link = uses.get((path, len(lines), column), "") if kind in Name else ""
                lines[-1].append((css, piece, link))
                column += len(piece)
    return [Markup("").join(_span(*part) for part in _merged(line)) for line in lines]


def _without_directives(comment: str) -> str:
    stripped = DIRECTIVES.sub("", comment)
    return comment if stripped == comment else stripped.rstrip() if stripped.strip("# \t") else ""


def _strip_end(line: list[tuple[str, str, str]]) -> None:
    while line and not line[-1][1].strip():
        line.pop()
    if line:
        css, text, link = line[-1]
        line[-1] = (css, text.rstrip(), link)


def _merged(line: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Neighbours of one colour as one piece: a smaller page."""
    merged: list[tuple[str, str, str]] = []
    for css, text, link in line:
        if merged and not link and not merged[-1][2] and (merged[-1][0] == css or not text.strip()):
            merged[-1] = (merged[-1][0], merged[-1][1] + text, "")
        else:
            merged.append((css, text, link))
    return merged


def _span(css: str, text: str, link: str) -> Markup:
    if link:
        return Markup("<a {}>{}</a>").format(Markup(link), text)
    return Markup('<span class="{}">{}</span>').format(css, text) if css else escape(text)
