"""`untraced` hides the machinery from the trace, and from nothing else."""

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import lecture_util

PROGRAM = '''\
from edtrace import text

from lecture_util import untraced


@untraced
def machinery(program):
    """What `machinery` does."""
    for argument in [1, 2]:
        (lambda: program(argument))()


@untraced
class Switch:
    def __init__(self):
        self.on = False

    def __enter__(self):
        self.on = True

    def __exit__(self, *exception):
        self.on = False


def program(argument):
    if argument == 3:
        raise ValueError("three")
    text(f"Argument {argument}")


def main():
    machinery(program)
    switch = Switch()
    with switch:
        program(0)
'''


@pytest.fixture(scope="module")
def program_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("untraced") / "small_program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_a_trace_has_the_lines_that_call_it_and_those_that_it_calls_and_none_of_its_own(program_path: Path) -> None:
    command = [sys.executable, "-m", "edtrace.execute", "-m", "small_program", "-o", "."]
    environment = os.environ | {"PYTHONPATH": str(Path(lecture_util.__file__).parent)}
    subprocess.run(command, cwd=program_path.parent, env=environment, check=True, capture_output=True, timeout=120)
    steps = json.loads(program_path.with_name("small_program.json").read_text(encoding="utf-8"))["steps"]
    assert {step["stack"][-1]["function_name"] for step in steps} == {"main", "program"}
    shown = [rendering["data"] for step in steps for rendering in step["renderings"]]
    assert shown == ["Argument 1", "Argument 2", "Argument 0"]


def test_it_still_works_and_a_traceback_shows_its_source(program_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("small_program", program_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.machinery.__doc__ == "What `machinery` does."
    with module.Switch() as _, pytest.raises(ValueError, match="three") as failure:
        module.machinery(lambda argument: module.program(argument + 2))
    shown = "".join(traceback.format_exception(failure.value))
    assert "(lambda: program(argument))()" in shown
