"""The list of mutants fits the source: whether they are caught is seen by running tests/mutants.py."""

import ast
import re

import pytest
from mutants import MUTANTS, ROOT, Mutant

SOURCES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("lecture_07.py", "gpu_util.py")}
LECTURE = SOURCES["lecture_07.py"]
SAYS_ONLY = re.compile(r"text\(|note\(|\"\"\"|'")


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_applies_and_is_a_program(mutant: Mutant) -> None:
    changed = mutant.apply(SOURCES[mutant.file])
    assert changed != SOURCES[mutant.file]
    ast.parse(changed)


def test_no_mutant_is_there_twice() -> None:
    assert len({(mutant.file, mutant.apply(SOURCES[mutant.file])) for mutant in MUTANTS}) == len(MUTANTS)


def test_every_test_that_should_catch_one_exists() -> None:
    for node_id in {node_id for mutant in MUTANTS for node_id in mutant.node_ids}:
        path, _, test = node_id.partition("::")
        assert f"\ndef {test}(" in "\n" + (ROOT / path).read_text(encoding="utf-8") or not test


def test_every_statement_of_each_per_rank_program_and_helper_is_changed_by_a_mutant() -> None:
    begin = LECTURE.index("\n# Per-rank programs")
    spans = [mutant.span(LECTURE) for mutant in MUTANTS if mutant.file == "lecture_07.py"]
    changed = {LECTURE.count("\n", 0, start + offset) + 1 for start, end in spans for offset in range(end - start)}
    missing = []
    for function in ast.parse(LECTURE).body:
        if isinstance(function, ast.FunctionDef) and function.lineno > LECTURE.count("\n", 0, begin):
            for node in ast.walk(function):
                is_simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
                code = ast.unparse(node).strip() if is_simple else ""
                if is_simple and not SAYS_ONLY.match(code) and node.lineno not in changed:
                    missing.append(f"{node.lineno}: {code}")
    assert not missing
