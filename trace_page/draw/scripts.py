"""The page's script: the ES modules of `browser/scripts` as one text, since a page without requests can import none."""

import re
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "browser" / "scripts"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


@cache
def bundle(entry: str = "main.js") -> str:
    """`entry` and all that it imports in one function, what is imported first; import and export fall away.

    Raises ValueError if two modules give one name to two things, which would then be one.
    """
    order: list[str] = []
    _collect(entry, order, set())
    owner: dict[str, str] = {}
    parts = ['"use strict";', "(() => {"]
    for name in order:
        text = (SCRIPTS / name).read_text(encoding="utf-8")
        for declared in DECLARED.findall(text):
            if owner.setdefault(declared, name) != name:
                raise ValueError(f"{declared} is declared in {owner[declared]} and in {name}: rename one")
        parts.append(re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE).strip())
    return "\n".join([*parts, "})();\n"])


def _collect(name: str, order: list[str], begun: set[str]) -> None:
    if name in begun:
        return
    begun.add(name)
    for imported in IMPORT.findall((SCRIPTS / name).read_text(encoding="utf-8")):
        _collect(imported, order, begun)
    order.append(name)
