"""The list of mutants fits the source: whether they are caught is seen by running tests/mutants.py."""

import ast

import pytest
from mutants import MUTANTS, ROOT, Mutant

SOURCES = {name: (ROOT / name).read_text(encoding="utf-8") for name in {mutant.file for mutant in MUTANTS}}
LECTURE = SOURCES["lecture_07.py"]
SECTIONS = (
    "main collective_operations hardware torch_distributed benchmarking data_parallelism tensor_parallelism "
    "pipeline_parallelism"
).split()


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
    spans = [mutant.span(LECTURE) for mutant in MUTANTS if mutant.file == "lecture_07.py"]
    changed = {LECTURE.count("\n", 0, position) + 1 for span in spans for position in range(*span)}
    definitions = [node for node in ast.parse(LECTURE).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    statements = [
        node
        for definition in definitions
        if definition.name not in SECTIONS
        for node in ast.walk(definition)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not is_narration(node)
    ]
    assert len(statements) > 100
    assert [f"{node.lineno}: {ast.unparse(node)}" for node in statements if node.lineno not in changed] == []


def is_narration(statement: ast.stmt) -> bool:
    """Whether it is a docstring or a text."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) or isinstance(value, ast.Call) and ast.unparse(value.func) == "text"
