"""A recorded run of a small program: its values against the collectives' definitions, its prints, its failures."""

import functools
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import collectives
import numpy as np
import pytest
import torch
import torch.distributed as dist
from recording_checks import array, call_of, communications, line_of, steps_at
from torch import nn

from trace_page.errors import RecordingError
from trace_page.read.recording import load_recording
from trace_page.record import rank_values, record
from trace_page.record.rank_tracer import RankTracer
from trace_page.record.rank_values import ValueReader
from trace_page.record.recording import Rank, Recording, save_recording, source_digest

TESTS = Path(__file__).parent
PROGRAM = TESTS / "recording_program.py"
SOURCE = PROGRAM.read_text(encoding="utf-8")
RECORD = "import sys; from trace_page.record import record; record(*sys.argv[1:])"


@dataclass
class Run:
    """A recorded run: what `record` returned, and the files that it wrote."""

    recording: Recording
    log: Path
    file: Path


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One recorded run for all tests."""
    folder = tmp_path_factory.mktemp("recording")
    log, file = folder / "log.txt", folder / "recording.json"
    return Run(record("recording_program", TESTS, log, file), log, file)


@pytest.fixture(scope="session")
def recording(run: Run) -> Recording:
    return run.recording


class TestTheRun:
    def test_calls_are_in_order_with_the_line_that_started_them(self, recording: Recording) -> None:
        assert [(call.function, call.world_size) for call in recording.calls] == [
            ("collectives", 3),
            ("training", 2),
            ("pipeline", 3),
        ]
        for call in recording.calls:
            assert call.path == call.caller.path == "recording_program.py"
            assert call.first_line == line_of(SOURCE, f"def {call.function}(")
            assert call.caller.line == line_of(SOURCE, f"start({call.function},")
            assert call.caller.function == "main"

    def test_the_log_holds_each_printed_line_once_and_whole(self, run: Run) -> None:
        printed = [line.text for call in run.recording.calls for rank in call.ranks for line in rank.prints]
        printed += [line.text for line in run.recording.prints]
        assert sorted(run.log.read_text(encoding="utf-8").splitlines()) == sorted(printed)
        assert len(printed) == 1 + 3 * 4

    def test_look_alike_lines_are_told_apart(self, recording: Recording) -> None:
        call = call_of(recording, "collectives")
        lines = [line_of(SOURCE, "data.tolist()", occurrence) for occurrence in (0, 1)]
        sums = [3.0, 6.0, 9.0]
        for rank, notes in enumerate(call.ranks):
            before, after = ([line.text for line in notes.prints if line.line == number] for number in lines)
            assert before == [f"rank {rank}: {[float(rank + index) for index in range(3)]}"]
            assert after == [f"rank {rank}: {sums}"]

    def test_a_line_printed_through_a_helper_belongs_to_the_caller(self, recording: Recording) -> None:
        for rank, notes in enumerate(call_of(recording, "collectives").ranks):
            at_say = [line for line in notes.prints if line.line == line_of(SOURCE, "say(f")]
            assert [line.text for line in at_say] == [f"rank {rank}: repetition {index}" for index in (0, 1)]
            values = [notes.values_after(line.step)["repetition"] for line in at_say]
            assert values == [0, 1]

    def test_the_parents_line_is_noted_with_its_place(self, recording: Recording) -> None:
        (line,) = recording.prints
        assert (line.text, line.path, line.call) == ("three programs", "recording_program.py", 0)
        assert line.line == line_of(SOURCE, 'print("three programs")')

    def test_it_says_what_it_ran_on_but_not_where(self, run: Run) -> None:
        environment = run.recording.environment
        assert environment["torch"].split("+")[0] == torch.__version__.split("+")[0]
        assert (environment["backends"], environment["devices"]) == (["gloo"], ["cpu"])
        assert str(TESTS) not in (text := run.file.read_text(encoding="utf-8"))
        assert platform.node() not in text

    def test_a_changed_source_makes_it_stale(self, recording: Recording, tmp_path: Path) -> None:
        assert recording.stale_files(TESTS) == []
        assert recording.stale_files(tmp_path) == ["recording_program.py"]
        (tmp_path / PROGRAM.name).write_bytes(PROGRAM.read_bytes().replace(b"\n", b"\r\n"))
        assert recording.stale_files(tmp_path) == []
        (tmp_path / PROGRAM.name).write_text(SOURCE + "\n", encoding="utf-8")
        assert recording.stale_files(tmp_path) == ["recording_program.py"]


class TestCollectives:
    @pytest.mark.parametrize(
        ("operation", "definition"),
        [
            ("all_reduce", collectives.all_reduce),
            ("reduce_scatter_single", collectives.reduce_scatter),
            ("all_gather", collectives.all_gather),
            ("all_gather_single", collectives.all_gather),
        ],
    )
    def test_values_around_it_are_those_of_its_definition(
        self, recording: Recording, operation: str, definition: Callable[[collectives.Buffers], collectives.Buffers]
    ) -> None:
        found = next(communications(call_of(recording, "collectives"), operation))
        inputs = [array(one) for noted in found for one in noted.inputs.values()]
        outputs = [array(one).reshape(-1) for noted in found for one in noted.outputs.values()]
        np.testing.assert_array_equal(outputs, definition(inputs))

    def test_a_broadcast_gives_every_rank_what_its_root_had(self, recording: Recording) -> None:
        (found,) = communications(call_of(recording, "collectives"), "broadcast")
        assert [noted.root for noted in found] == [1, 1, 1]
        assert [array(noted.outputs["from_root"]).tolist() for noted in found] == [[2.0, 2.0]] * 3
        assert [array(noted.inputs["from_root"]).tolist() for noted in found] == [[rank + 1.0] * 2 for rank in range(3)]

    def test_a_variable_shows_the_new_value_from_that_line_on(self, recording: Recording) -> None:
        line = line_of(SOURCE, "dist.all_reduce(tensor=data")
        for rank, notes in enumerate(call_of(recording, "collectives").ranks):
            (step,) = steps_at(notes.steps, line)
            index = notes.steps.index(step)
            assert list(step.changed) == ["data"]
            assert array(notes.values_after(index - 1)["data"]).tolist() == [rank + 0.0, rank + 1.0, rank + 2.0]
            assert array(notes.values_after(index)["data"]).tolist() == [3.0, 6.0, 9.0]

    def test_only_what_is_filled_counts_as_changed(self, recording: Recording) -> None:
        for notes in call_of(recording, "collectives").ranks:
            (step,) = steps_at(notes.steps, line_of(SOURCE, "dist.reduce_scatter_single"))
            assert list(step.changed) == ["part"]
            assert step.communications[0].reduce_op == "SUM"

    def test_arguments_are_named_as_in_the_source(self, recording: Recording) -> None:
        (found, _) = communications(call_of(recording, "training"), "all_reduce")
        assert [list(noted.inputs) for noted in found] == [["param.grad"]] * 2
        assert [noted.reduce_op for noted in found] == ["AVG", "AVG"]

    def test_a_statement_of_several_lines_is_one_step(self, recording: Recording) -> None:
        first = line_of(SOURCE, "dist.all_gather_single(")
        for notes in call_of(recording, "collectives").ranks:
            steps = [step for step in notes.steps if first <= step.line <= first + 3]
            assert [(step.line, step.last_line) for step in steps] == [(first, first + 3)]

    def test_of_a_big_tensor_only_the_layout_is_noted(self, recording: Recording) -> None:
        layout = {"type": "torch.Tensor", "shape": [2**20 + 1], "dtype": "float32", "device": "cpu"}
        for notes in call_of(recording, "collectives").ranks:
            (made,) = steps_at(notes.steps, line_of(SOURCE, "big = "))
            (reduced,) = steps_at(notes.steps, line_of(SOURCE, "dist.all_reduce(big)"))
            assert made.changed == reduced.changed == {"big": layout}

    def test_sends_and_receives_match(self, recording: Recording) -> None:
        ranks = call_of(recording, "pipeline").ranks
        noted = [{item.operation: item for step in rank.steps for item in step.communications} for rank in ranks]
        assert [sorted(of_rank) for of_rank in noted] == [["send"], ["recv", "send"], ["recv"]]
        for source in (0, 1):
            sent, received = noted[source]["send"], noted[source + 1]["recv"]
            assert (sent.peer, received.peer) == (source + 1, source)
            assert sent.inputs["x"] == received.outputs["x"]
            assert sent.inputs["x"]["values"] == ["inf", -0.0, 0.1]

    def test_a_rank_has_no_step_in_a_branch_that_it_does_not_take(self, recording: Recording) -> None:
        only_first, only_others = line_of(SOURCE, 'float("inf")'), line_of(SOURCE, "dist.recv")
        taken = [{step.line for step in rank.steps} for rank in call_of(recording, "pipeline").ranks]
        assert [only_first in lines for lines in taken] == [True, False, False]
        assert [only_others in lines for lines in taken] == [False, True, True]


class TestTraining:
    def test_one_step_on_two_ranks_is_a_step_on_the_whole_batch(self, recording: Recording) -> None:
        params = [np.eye(2) * 0.5, np.ones((2, 2))]
        gradients = np.mean([gradients_of(params, np.array([[1.0, 2.0]]) * rows) for rows in (1, 2)], axis=0)
        for notes in call_of(recording, "training").ranks:
            items = notes.values_after(len(notes.steps))["params"]["items"]
            for item, param, gradient in zip(items, params, gradients, strict=True):
                np.testing.assert_allclose(array(item["grad"]), gradient, rtol=1e-6)
                np.testing.assert_allclose(array(item), param - 0.1 * gradient, rtol=1e-6)

    def test_backward_fills_gradients_and_the_optimizer_changes_parameters(self, recording: Recording) -> None:
        for notes in call_of(recording, "training").ranks:
            made = steps_at(notes.steps, line_of(SOURCE, "params = "))[0].changed["params"]["items"]
            (backward,) = steps_at(notes.steps, line_of(SOURCE, "loss.backward()"))
            (optimized,) = steps_at(notes.steps, line_of(SOURCE, "optimizer.step()"))
            filled, stepped = backward.changed["params"]["items"], optimized.changed["params"]["items"]
            assert [item["grad"] for item in made] == [None, None]
            assert [item["values"] for item in filled] == [item["values"] for item in made]
            assert all(item["grad"]["shape"] == [2, 2] for item in filled)
            assert all(new["values"] != old["values"] for new, old in zip(stepped, filled, strict=True))


def gradients_of(params: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """Gradients of mean((x @ params[0] @ params[1])²), by the chain rule."""
    hidden = x @ params[0]
    output = hidden @ params[1]
    upstream = 2 * output / output.size
    return [x.T @ (upstream @ params[1].T), hidden.T @ upstream]


class TestFailures:
    def test_a_failing_rank_fails_the_recording_and_changes_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        log, file = tmp_path / "log.txt", tmp_path / "recording.json"
        log.write_text("former log", encoding="utf-8")
        file.write_text("former recording", encoding="utf-8")
        monkeypatch.setenv("RECORDING_PROGRAM", "failing")
        with pytest.raises(RecordingError, match="recording_program ended with exit code 1"):
            record("recording_program", TESTS, log, file)
        assert "ZeroDivisionError: rank 1 divides by zero" in capfd.readouterr().err
        assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {
            "log.txt": "former log",
            "recording.json": "former recording",
        }

    def test_an_interrupt_ends_every_rank_and_changes_no_file(self, tmp_path: Path) -> None:
        arguments = ["recording_program", str(TESTS), str(tmp_path / "log.txt"), str(tmp_path / "recording.json")]
        environment = os.environ | {"RECORDING_PROGRAM": "waiting"}
        command = [sys.executable, "-c", RECORD, *arguments]
        recorder = subprocess.Popen(command, cwd=TESTS.parent, env=environment, stderr=subprocess.PIPE)
        try:
            wait_for_ranks(tmp_path)
            recorder.send_signal(signal.SIGINT)
            recorder.communicate(timeout=10)  # returns once no process has the pipe open any more
        finally:
            recorder.kill()
        assert recorder.returncode != 0
        assert list(tmp_path.iterdir()) == []

    def test_a_program_without_a_main_is_named(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "no_main_here.py").write_text("print('nothing')\n", encoding="utf-8")
        with pytest.raises(RecordingError):
            record("no_main_here", tmp_path, tmp_path / "log.txt", tmp_path / "recording.json")
        assert "no_main_here.py has no main()" in capfd.readouterr().err
        assert [path.name for path in tmp_path.glob("*.*")] == ["no_main_here.py"]


def wait_for_ranks(folder: Path) -> None:
    """Wait until both ranks have printed into the log that is being written."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if "".join(path.read_text(encoding="utf-8") for path in folder.iterdir()).count("is waiting\n") == 2:
            return
        time.sleep(0.1)
    raise TimeoutError("the ranks did not start")


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def trace(function: Callable, *arguments: object) -> Rank:
    """The notes of one rank, run in this process."""
    former = sys.gettrace()
    notes = RankTracer(function).run(*arguments)
    assert sys.gettrace() is former
    return notes


def changes(notes: Rank) -> list[tuple[int, dict]]:
    """For each step: its line, counted from that of `def`, and what changed."""
    return [(step.line - notes.steps[0].line, step.changed) for step in notes.steps]


class TestTracer:
    def test_loops_run_through_their_header_once_more_than_through_their_body(self) -> None:
        def program(rank: int) -> None:
            for index in range(2):
                total = rank + index
            del total

        assert changes(trace(program, 5)) == [
            (0, {"rank": 5}),
            (1, {"index": 0}),
            (2, {"total": 5}),
            (1, {"index": 1}),
            (2, {"total": 6}),
            (1, {}),
            (3, {}),
        ]

    def test_a_loop_of_one_statement_is_a_step_each_time(self) -> None:
        def program(numbers: list[float]) -> None:
            while True:
                numbers.append(1 / (3 - len(numbers)))

        tracer = RankTracer(program)
        with pytest.raises(ZeroDivisionError):
            tracer.run([])
        assert [step.changed["numbers"]["length"] for step in tracer.steps if step.changed] == [0, 1, 2, 3]

    def test_a_comprehension_over_several_lines_is_one_step(self) -> None:
        def program(count: int) -> None:
            squares = [
                index**2
                for index in range(count)
            ]  # fmt: skip
            del squares

        notes = trace(program, 3)
        assert [line for line, _ in changes(notes)] == [0, 1, 5]
        assert list(notes.steps[1].changed) == ["squares"]
        assert notes.steps[1].last_line - notes.steps[1].line == 3
        assert notes.steps[2].deleted == ["squares"]

    def test_setting_an_equal_value_counts_as_set(self) -> None:
        def program() -> None:
            value = 1
            value = 1
            other = value  # noqa: F841

        assert changes(trace(program)) == [(0, {}), (1, {"value": 1}), (2, {"value": 1}), (3, {"other": 1})]

    def test_an_assignment_that_fails_sets_nothing(self) -> None:
        def program() -> None:
            value = 1
            try:
                value = 1 // 0
            except ZeroDivisionError:
                value += 1

        assert [changed for _, changed in changes(trace(program))] == [{}, {"value": 1}, {}, {}, {}, {"value": 2}]

    def test_content_changed_behind_the_version_counter_is_seen(self) -> None:
        def program(tensor: torch.Tensor) -> None:
            tensor.numpy()[0] = 7
            tensor = tensor  # noqa: PLW0127

        version_before = (tensor := torch.zeros(2))._version
        notes = trace(program, tensor)
        assert tensor._version == version_before
        assert notes.steps[1].changed["tensor"]["values"] == [7.0, 0.0]

    def test_an_operation_that_is_only_started_has_no_value_after_it(self, alone: None) -> None:
        def program(tensor: torch.Tensor) -> None:
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()

        (communication,) = trace(program, torch.ones(2)).steps[1].communications
        assert communication.asynchronous and communication.tensors[0].after is None

    def test_an_operation_made_of_another_one_is_noted_once(self, alone: None) -> None:
        def program(tensor: torch.Tensor, output: torch.Tensor) -> None:
            dist.reduce_scatter_tensor(output, tensor)

        with pytest.warns(FutureWarning):
            (communication,) = trace(program, torch.ones(1), torch.zeros(1)).steps[1].communications
        assert communication.operation == "reduce_scatter_tensor"
        assert (list(communication.inputs), list(communication.outputs)) == (["tensor"], ["output"])

    def test_an_operation_that_a_helper_calls_belongs_to_the_programs_line(self, alone: None) -> None:
        def helper(buffer: torch.Tensor) -> None:
            dist.all_reduce(buffer)

        def program(data: torch.Tensor) -> None:
            helper(data)

        (communication,) = trace(program, torch.ones(1)).steps[1].communications
        assert list(communication.inputs) == ["data"]

    def test_what_a_branch_on_the_same_line_does_not_call_is_not_noted(self, alone: None) -> None:
        def program(rank: int, data: torch.Tensor) -> None:
            dist.barrier() if rank else dist.all_reduce(data)

        (communication,) = trace(program, 0, torch.ones(1)).steps[1].communications
        assert communication.operation == "all_reduce"

    def test_stdout_stays_the_same_stream(self, capsys: pytest.CaptureFixture[str]) -> None:
        seen = []

        def program() -> None:
            seen.append(sys.stdout)
            print("one", "two", sep="\n")
            print("rest", end="")

        stdout, write = sys.stdout, sys.stdout.write
        notes = trace(program)
        assert seen == [stdout] and sys.stdout is stdout and stdout.write == write
        assert [line.text for line in notes.prints] == ["one", "two", "rest"]
        assert capsys.readouterr().out == "one\ntwo\nrest"

    def test_a_decorator_is_not_part_of_the_program(self) -> None:
        def twice(function: Callable) -> Callable:
            @functools.wraps(function)
            def wrapper(rank: int) -> None:
                print("before")
                function(rank)
                print("between")
                function(rank + 1)

            return wrapper

        @twice
        def program(rank: int) -> None:
            print(rank, end="")

        notes = trace(program, 3)
        assert [step.changed for step in notes.steps] == [{"rank": 3}, {}]
        assert [(line.text, line.step) for line in notes.prints] == [("3", 1)]

    def test_tensors_of_inference_mode_can_be_recorded(self) -> None:
        def program() -> None:
            with torch.inference_mode():
                value = torch.ones(1)
                value += 1

        values = [step.changed["value"]["values"] for step in trace(program).steps if "value" in step.changed]
        assert values == [[1.0], [2.0]]


class Secretive:
    """Has an attribute, so that its repr is not asked for."""

    def __init__(self) -> None:
        self.value = 1

    def __repr__(self) -> str:
        raise AssertionError("asked for its repr")


class Slotted:
    """Without a dictionary; its repr has an address in it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Slotted at {id(self):#x}>"


class Failing:
    """Cannot be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise OSError("no repr today")


class TestValues:
    @pytest.mark.parametrize("value", [None, True, 0, -5, 0.1, 1e300, "text", "two\nlines"])
    def test_small_plain_values_are_as_they_are(self, value: object) -> None:
        read = ValueReader().read(value)
        assert read == value and type(read) is type(value)

    @pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
    def test_other_floats_are_named(self, value: float, text: str) -> None:
        assert ValueReader().read(value) == {"type": "float", "value": text}
        assert ValueReader().read(torch.tensor([value]))["values"] == [text]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
    def test_elements_give_back_the_tensor(self, dtype: torch.dtype) -> None:
        tensor = (torch.randn(8, 8, generator=torch.Generator().manual_seed(1)) * 100).to(dtype)
        value = ValueReader().read(tensor.T)
        assert value["dtype"] == str(dtype).removeprefix("torch.")
        assert torch.equal(torch.tensor(value["values"], dtype=dtype).reshape(value["shape"]), tensor.T)

    def test_a_larger_tensor_is_summarised(self) -> None:
        tensor = torch.randn(5, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        value = ValueReader().read(tensor)
        assert "values" not in value
        assert value["first"] == tensor[0, :8].tolist()
        assert value["mean"] == pytest.approx(tensor.mean().item(), rel=1e-6)
        assert value["norm"] == pytest.approx(tensor.norm().item(), rel=1e-6)

    def test_above_the_limit_the_content_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rank_values, "array_of", lambda tensor: pytest.fail("read"))
        assert set(ValueReader().read(torch.empty(2**20 + 1))) == {"type", "shape", "dtype", "device"}

    def test_a_parameter_shows_its_gradient(self) -> None:
        parameter = nn.Parameter(torch.ones(2))
        assert ValueReader().read(parameter)["grad"] is None
        (3 * parameter).sum().backward()
        assert ValueReader().read(parameter)["grad"]["values"] == [3.0, 3.0]
        assert "grad" not in ValueReader().read(torch.ones(2))

    def test_containers_show_their_elements_up_to_a_limit(self) -> None:
        value = ValueReader().read({"numbers": list(range(99)), 1: (None,)})
        assert value == {
            "type": "dict",
            "length": 2,
            "items": [
                ["numbers", {"type": "list", "length": 99, "items": list(range(16))}],
                ["1", {"type": "tuple", "length": 1, "items": [None]}],
            ],
        }
        endless: list = []
        endless.append(endless)
        assert len(json.dumps(ValueReader().read(endless))) < 500

    def test_a_module_shows_its_parameters(self) -> None:
        value = ValueReader().read(nn.Linear(2, 1))
        assert value["type"] == "torch.nn.modules.linear.Linear"
        assert [name for name, _ in value["items"]] == ["weight", "bias"]

    def test_other_objects_show_their_type_and_no_address(self) -> None:
        read = ValueReader().read
        assert read(torch.device("cpu")) == {"type": "torch.device", "repr": "device(type='cpu')"}
        assert read(range(3)) == {"type": "range", "repr": "range(0, 3)"}
        assert read(Slotted())["repr"] == "<Slotted>"
        assert "repr" not in read(Secretive()) and "error" not in read(Secretive())
        assert "0x" not in json.dumps([read(object()), read(print), read(trace), read(sys), read({1, 2})])

    def test_what_cannot_be_read_says_why(self) -> None:
        assert ValueReader().read(Failing())["error"] == "OSError: no repr today"
        assert "error" in ValueReader().read(torch.eye(2).to_sparse())

    def test_a_long_string_is_cut_and_a_broken_one_encoded(self) -> None:
        value = ValueReader().read("x" * 1000)
        assert (value["length"], len(value["first"])) == (1000, 200)
        ValueReader().read("\udc80").encode("utf-8")


def first_rank(data: dict) -> dict:
    """The JSON of the first call's first rank."""
    return data["calls"][0]["ranks"][0]


class TestTheFormat:
    def test_saving_what_was_loaded_changes_nothing(self, run: Run, tmp_path: Path) -> None:
        copy = tmp_path / "copy.json"
        save_recording(load_recording(run.file), copy)
        assert copy.read_bytes() == run.file.read_bytes()

    def test_the_file_is_strict_json_in_which_no_value_comes_twice(self, run: Run) -> None:
        def refuse(name: str) -> None:
            pytest.fail(f"{name} is not JSON")

        data = json.loads(run.file.read_text(encoding="utf-8"), parse_constant=refuse)
        texts = [json.dumps(value) for value in data["values"]]
        assert len(texts) == len(set(texts))

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda data: data.update(version=2), "version is 2; this program reads version 1: record again"),
            (lambda data: data.pop("module"), "recording has no entry 'module'"),
            (lambda data: data.update(calls={}), "recording.calls should be a list"),
            (lambda data: data["environment"].pop("devices"), "recording.environment has no entry 'devices'"),
            (lambda data: data["calls"][0]["ranks"].pop(), "recording.calls[0] has 2 ranks, its world size is 3"),
            (lambda data: first_rank(data)["steps"][2].update(line="7"), "steps[2].line should be an integer"),
            (lambda data: first_rank(data)["steps"][0]["changed"].update(rank=10**6), "refers to value 1000000"),
            (lambda data: first_rank(data)["prints"][0].update(step=0), "step 0 is not a step at line"),
            (lambda data: data["values"].append({"shape": [1]}), "has no entry 'type'"),
            (lambda data: data["values"].append({"type": "list", "length": 1, "items": [["a"]]}), "a key and a value"),
            (lambda data: data["values"].append({"type": "dict", "length": 2, "items": [["a", 1], 2]}), "be a list"),
            (lambda data: data["values"].append({"type": "list", "items": [1]}), "has no entry 'length'"),
            (lambda data: first_rank(data).update(steps=[]), "ranks[0].steps is empty"),
        ],
    )
    def test_a_wrong_file_is_refused_with_what_is_wrong(
        self, run: Run, tmp_path: Path, spoil: Callable[[dict], object], message: str
    ) -> None:
        data = json.loads(run.file.read_text(encoding="utf-8"))
        spoil(data)
        wrong = tmp_path / "wrong.json"
        wrong.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            load_recording(wrong)
        assert str(wrong) in str(error.value)

    @pytest.mark.parametrize("text", ["", "[1, 2", "[]", '{"version": NaN}'])
    def test_what_is_no_recording_is_refused(self, tmp_path: Path, text: str) -> None:
        wrong = tmp_path / "wrong.json"
        wrong.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(str(wrong))):
            load_recording(wrong)

    def test_the_digest_of_a_missing_source_is_none(self, tmp_path: Path) -> None:
        assert source_digest(tmp_path / "missing.py") is None


class TestGroups:
    """What `new_group` gives to the ranks inside and outside the group."""

    def test_a_group_is_its_ranks_and_a_rank_outside_is_told(self) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            inside = ValueReader().read(dist.new_group([0]))
            outside = ValueReader().read(dist.GroupMember.NON_GROUP_MEMBER)
        finally:
            dist.destroy_process_group()
        assert inside["repr"] == "process group of ranks 0"
        assert outside["repr"] == "not in this group"
        assert ValueReader().read(int("-100")) == -100, "the number is a number elsewhere"
