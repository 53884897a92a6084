"""edtrace steps through the narration, every section and every per-rank program, and always the same way."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "lecture_07.py"
COMMITTED = REPOSITORY / "var" / "traces" / "lecture_07.json"

SECTIONS = {
    "main", "collective_operations", "hardware", "torch_distributed", "benchmarking",
    "data_parallelism", "tensor_parallelism", "pipeline_parallelism",
}  # fmt: skip
PROGRAMS = {
    "collective_operations_main", "all_reduce", "reduce_scatter",
    "data_parallelism_main", "tensor_parallelism_main", "pipeline_parallelism_main",
}  # fmt: skip
CONTRACT_INSPECTS = {
    "collective_operations_main": {"rank", "world_size"},
    "data_parallelism_main": {"batch_size", "num_dim", "local_batch_size", "start_index", "end_index"},
    "tensor_parallelism_main": {"batch_size", "num_dim", "local_num_dim"},
    "pipeline_parallelism_main": {"batch_size", "num_dim", "local_num_layers", "micro_batch_size"},
}
COLLECTIVE_CALLS = {"all_reduce", "reduce_scatter_single", "all_gather_single", "all_gather", "recv"}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess, bytes]:
    """A fresh trace: what the command said, and what it wrote, with other hashes and threads than usual."""
    folder = tmp_path_factory.mktemp("traces")
    command = [sys.executable, "-m", "edtrace.execute", "-m", "lecture_07", "-o", str(folder)]
    environment = os.environ | {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120)
    return run, (folder / "lecture_07.json").read_bytes()


@pytest.fixture(scope="module")
def trace(traced: tuple[subprocess.CompletedProcess, bytes]) -> dict:
    """The trace, read as strict JSON."""

    def reject(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(traced[1], parse_constant=reject)


def top(step: dict) -> dict:
    """The innermost frame of a step."""
    return step["stack"][-1]


def test_the_command_succeeds_and_complains_of_nothing(traced: tuple[subprocess.CompletedProcess, bytes]) -> None:
    run, _ = traced
    assert run.returncode == 0
    assert run.stderr == ""
    assert "WARNING" not in run.stdout, "every directive is one, and every name to inspect exists"


def test_the_committed_trace_is_what_a_fresh_one_gives(traced: tuple[subprocess.CompletedProcess, bytes]) -> None:
    assert traced[1] == COMMITTED.read_bytes(), "trace again: python -m edtrace.execute -m lecture_07"


def test_it_contains_the_current_source(trace: dict) -> None:
    assert trace["files"] == {"lecture_07.py": SOURCE.read_text(encoding="utf-8")}


def test_it_steps_into_every_section_and_program_and_nothing_else(trace: dict) -> None:
    assert {top(step)["function_name"] for step in trace["steps"]} == SECTIONS | PROGRAMS


def test_it_is_short_enough_to_step_through(trace: dict) -> None:
    assert len(trace["steps"]) <= 450


def test_it_passes_every_narration_line(trace: dict) -> None:
    calls = [node for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    narration = {"text", "image", "link", "note", "article_link", "post_link", "video_link"}
    lines = {call.lineno for call in calls if getattr(call.func, "id", None) in narration}
    assert len(lines) > 100
    assert lines == {top(step)["line_number"] for step in trace["steps"] if step["renderings"]}


def test_it_inspects_what_the_contract_names(trace: dict) -> None:
    for function, names in CONTRACT_INSPECTS.items():
        inspected = {name for step in trace["steps"] if top(step)["function_name"] == function for name in step["env"]}
        assert names <= inspected, function


def contents(value: object) -> Iterator[object]:
    """Every number, string and so on in an inspected value."""
    if isinstance(value, dict):
        value = value["contents"] if "contents" in value else list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from contents(item)
    else:
        yield value


def test_every_inspected_float_is_a_whole_number(trace: dict) -> None:
    values = [item for step in trace["steps"] for value in step["env"].values() for item in contents(value)]
    floats = [value for value in values if isinstance(value, float)]
    assert len(floats) > 100
    assert all(value.is_integer() for value in floats), "others differ from processor to processor"


def test_no_inspected_value_passes_for_the_result_of_a_collective(trace: dict) -> None:
    """Whatever a collective or a receive would have filled is neither shown after it, nor still shown from before.

    Shapes are, as no collective changes them.
    """
    source = SOURCE.read_text(encoding="utf-8").splitlines()
    shown: dict[str, dict] = {}
    num_collectives = 0
    for step in trace["steps"]:
        function, line = top(step)["function_name"], top(step)["line_number"]
        shown.setdefault(function, {}).update(step["env"])
        if function not in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(source[line - 1].strip() if "dist." in source[line - 1] else "")):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in COLLECTIVE_CALLS:
                num_collectives += 1
                written = ast.unparse(node.args[0])
                assert shown[function].get(written) is None, f"line {line} would have filled {written}"
    assert num_collectives >= 15


def test_rank_0_inspects_its_own_input_before_the_all_reduce(trace: dict) -> None:
    values = [step["env"]["data"] for step in trace["steps"] if "data" in step["env"]]
    assert [value and value["contents"] for value in values] == [[0, 1, 2, 3], None], "shown, then cleared"
