"""The lecture's own recorded run: each value against the collective's definition or the same network on one process.

It is the run in var/traces that readers see on the page; when lecture_07.py has changed since, a new one is recorded.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import collectives
import numpy as np
import pytest
import torch
from log_lines import check_log
from recording_checks import array, call_of, communications, line_of
from torch.nn.functional import gelu

import lecture_07
from trace_page.read.alignment import align
from trace_page.read.recording import load_recording
from trace_page.read.trace import load_trace
from trace_page.record import record
from trace_page.record.recording import Call, Rank, Recording, Value

ROOT = Path(__file__).parent.parent
TRACES = ROOT / "var" / "traces"
SOURCE = (ROOT / "lecture_07.py").read_text(encoding="utf-8")
NUM_LAYERS = 4


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the one recorded run of all these tests is."""
    folder = tmp_path_factory.mktemp("lecture")
    log, committed = TRACES / "lecture_07_stdout.txt", TRACES / "lecture_07_recording.json"
    if committed.exists() and not load_recording(committed).stale_files(ROOT):
        shutil.copy(log, folder / "log.txt")
        shutil.copy(committed, folder / "recording.json")
        return folder
    record("lecture_07", ROOT, folder / "log.txt", folder / "recording.json")
    return folder


@pytest.fixture(scope="session")
def recording(folder: Path) -> Recording:
    return load_recording(folder / "recording.json")


@pytest.fixture
def data() -> torch.Tensor:
    return lecture_07.generate_sample_data()


def assert_summarises(value: Value, tensor: torch.Tensor, rtol: float = 1e-4) -> None:
    """A recorded summary is that of `tensor`, within the differences of another order of summation."""
    wide = tensor.detach().double()
    scale = wide.abs().mean().item()
    assert value["shape"] == list(wide.shape)
    np.testing.assert_allclose(value["first"], wide.flatten()[:8], rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(value["norm"], wide.norm(), rtol=rtol)
    np.testing.assert_allclose(value["mean"], wide.mean(), rtol=rtol, atol=rtol * scale)


def values_after(notes: Rank, text: str, after: str = "") -> Iterator[dict[str, Value]]:
    """The variables after each execution of the line that has `text` in it, the first one below the text `after`."""
    start = SOURCE.index(after)
    line = SOURCE[: SOURCE.index(text, start)].count("\n") + 1
    return (notes.values_after(index) for index, step in enumerate(notes.steps) if step.line == line)


def program(call: Call) -> str:
    """The head of a per-rank program."""
    return f"def {call.function}("


class TestTheRun:
    def test_it_has_every_call_with_the_line_that_starts_it(self, recording: Recording) -> None:
        assert [(call.function, call.world_size) for call in recording.calls] == [
            ("collective_operations_main", 4),
            ("all_reduce", 4),
            ("reduce_scatter", 4),
            ("data_parallelism_main", 4),
            ("tensor_parallelism_main", 4),
            ("pipeline_parallelism_main", 2),
        ]
        for call in recording.calls:
            assert call.first_line == line_of(SOURCE, program(call))
            assert call.caller.line == line_of(SOURCE, f"spawn({call.function},")

    def test_the_log_is_that_of_a_plain_run(self, folder: Path, recording: Recording) -> None:
        sizes = {call.function: call.world_size for call in recording.calls}
        kinds = {"collectives": "collective_operations_main", "benchmarks": "all_reduce"}
        kinds |= {f"{cut}_parallelism": f"{cut}_parallelism_main" for cut in ("data", "tensor", "pipeline")}
        log = (folder / "log.txt").read_text(encoding="utf-8")
        check_log(log, {kind: sizes[function] for kind, function in kinds.items()})

    def test_every_line_of_the_log_belongs_to_a_step(self, folder: Path, recording: Recording) -> None:
        printed = [line.text for call in recording.calls for rank in call.ranks for line in rank.prints]
        assert sorted(printed) == sorted((folder / "log.txt").read_text(encoding="utf-8").splitlines())
        for call in recording.calls:
            for number, rank in enumerate(call.ranks):
                assert all(f"ank {number}" in line.text for line in rank.prints)

    def test_every_traced_step_of_a_program_is_one_of_each_rank(self, recording: Recording) -> None:
        trace = load_trace(TRACES / "lecture_07.json", ROOT)
        programs = {call.function for call in recording.calls}
        inside = [number for number, step in enumerate(trace.steps) if step.here.function in programs]
        joined = align(trace, recording)
        assert list(joined) == inside
        for index, turns in joined.values():
            executing = [turn.first >= 0 for turn in turns]
            assert executing[0] and (all(executing) or recording.calls[index].function == "pipeline_parallelism_main")

    def test_it_is_small(self, folder: Path) -> None:
        assert (folder / "recording.json").stat().st_size < 300_000

    @pytest.mark.parametrize("function", ["all_reduce", "reduce_scatter"])
    def test_what_is_timed_is_not_read(self, recording: Recording, function: str) -> None:
        tensors = [
            value
            for rank in call_of(recording, function).ranks
            for step in rank.steps
            for value in step.changed.values()
            if isinstance(value, dict) and value["type"] == "torch.Tensor"
        ]
        assert tensors and all(set(value) == {"type", "shape", "dtype", "device"} for value in tensors)


class TestCollectiveOperations:
    @pytest.mark.parametrize(
        ("operation", "name"),
        [
            ("all_reduce", "all-reduce"),
            ("reduce_scatter_single", "reduce-scatter"),
            ("all_gather_single", "all-gather"),
        ],
    )
    def test_values_around_it_are_those_of_its_definition(
        self, recording: Recording, operation: str, name: str
    ) -> None:
        (found,) = communications(call_of(recording, "collective_operations_main"), operation)
        inputs = [array(value) for noted in found for value in noted.inputs.values()]
        outputs = [array(value) for noted in found for value in noted.outputs.values()]
        np.testing.assert_array_equal(outputs, collectives.COLLECTIVES[name].function(inputs))

    def test_reduce_scatter_and_all_gather_make_an_all_reduce(self, recording: Recording) -> None:
        for notes in call_of(recording, "collective_operations_main").ranks:
            last = notes.values_after(len(notes.steps))
            assert last["output"]["values"] == last["data"]["values"] == [6.0, 10.0, 14.0, 18.0]


class TestDataParallelism:
    def whole_batch(self, data: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The gradients and the parameters after a step of one process on `data`."""
        params = [lecture_07.get_init_params(data.size(1), data.size(1), rank=0) for _ in range(NUM_LAYERS)]
        optimizer = torch.optim.AdamW(params, lr=1e-3)
        x = data
        for param in params:
            x = gelu(x @ param)
        x.square().mean().backward()
        optimizer.step()
        return [param.grad for param in params], params

    def test_the_parameters_are_those_of_one_process_on_the_whole_batch(
        self, recording: Recording, data: torch.Tensor
    ) -> None:
        _, params = self.whole_batch(data)
        call = call_of(recording, "data_parallelism_main")
        for notes in call.ranks:
            (values,) = values_after(notes, "optimizer.step()", program(call))
            for item, param in zip(values["params"]["items"], params, strict=True):
                assert_summarises(item, param)

    def test_all_reduce_turns_the_slices_gradients_into_that_of_the_batch(
        self, recording: Recording, data: torch.Tensor
    ) -> None:
        gradients, _ = self.whole_batch(data)
        of_slices = [self.whole_batch(part)[0] for part in data.chunk(4)]
        found = list(communications(call_of(recording, "data_parallelism_main"), "all_reduce"))
        assert len(found) == NUM_LAYERS
        for layer, of_ranks in enumerate(found):
            for rank, noted in enumerate(of_ranks):
                assert_summarises(noted.inputs["param.grad"], of_slices[rank][layer], rtol=1e-3)
                assert_summarises(noted.outputs["param.grad"], gradients[layer], rtol=1e-3)

    def test_losses_differ_and_parameters_do_not(self, recording: Recording) -> None:
        ends = [rank.values_after(len(rank.steps)) for rank in call_of(recording, "data_parallelism_main").ranks]
        assert len({values["loss"]["values"][0] for values in ends}) == 4
        assert all(values["params"] == ends[0]["params"] for values in ends)


class TestTensorParallelism:
    def test_each_layers_activations_are_those_of_the_dense_network(
        self, recording: Recording, data: torch.Tensor
    ) -> None:
        shard = lecture_07.get_init_params(data.size(1), data.size(1) // 4, rank=0).detach()
        dense = torch.cat([shard.roll(rank, dims=1) for rank in range(4)], dim=1)
        call = call_of(recording, "tensor_parallelism_main")
        for notes in call.ranks:
            x = data
            layers = list(values_after(notes, "x = torch.cat(", program(call)))
            assert len(layers) == NUM_LAYERS
            for values in layers:
                x = gelu(x @ dense)
                assert_summarises(values["x"], x)

    def test_every_rank_gathers_every_ranks_slice(self, recording: Recording) -> None:
        found = list(communications(call_of(recording, "tensor_parallelism_main"), "all_gather"))
        assert len(found) == NUM_LAYERS
        for of_ranks in found:
            slices = [noted.inputs["x"] for noted in of_ranks]
            assert all(noted.outputs["activations"]["items"] == slices for noted in of_ranks)


class TestPipelineParallelism:
    def test_each_micro_batch_comes_out_as_from_one_process(self, recording: Recording, data: torch.Tensor) -> None:
        param = lecture_07.get_init_params(data.size(1), data.size(1), rank=0).detach()
        call = call_of(recording, "pipeline_parallelism_main")
        num_local = NUM_LAYERS // call.world_size
        for rank, notes in enumerate(call.ranks):
            outputs = list(values_after(notes, "x = F.gelu(x @ param)", program(call)))[num_local - 1 :: num_local]
            assert len(outputs) == 4
            for values, x in zip(outputs, data.chunk(4), strict=True):
                for _ in range(num_local * (rank + 1)):
                    x = gelu(x @ param)
                assert_summarises(values["x"], x)

    def test_what_is_received_is_what_was_sent(self, recording: Recording) -> None:
        first, second = (
            [noted for step in rank.steps for noted in step.communications if noted.operation != "barrier"]
            for rank in call_of(recording, "pipeline_parallelism_main").ranks
        )
        assert [(noted.operation, noted.peer) for noted in first] == [("send", 1)] * 4
        assert [(noted.operation, noted.peer) for noted in second] == [("recv", 0)] * 4
        assert [noted.inputs["x"] for noted in first] == [noted.outputs["x"] for noted in second]
        assert all(noted.tensors[0].before != noted.tensors[0].after for noted in second)
