"""The lines that the lecture prints, as the contract writes them, and what they say."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from collectives import COLLECTIVES

TENSOR = r"tensor\(\[(?P<{}>[ \d,.]+)\](?:, device='cuda:\d+')?\)"
SUMMARY = r"\d+x\d+\[-?\d+\.\d+(?:e-\d+)?\.\.\.\]"
DURATION = r"\d+\.\d\d(?:us|ms|s)"
BEFORE_AND_AFTER = {
    name: rf"Rank (?P<rank>\d+) \[(?P<when>before|after) {name}\]: {values}"
    for name, values in {
        "all-reduce": TENSOR.format("input"),
        "reduce-scatter": f"input = {TENSOR.format('input')}, output = {TENSOR.format('output')}",
        "all-gather": f"input = {TENSOR.format('input')}, output = {TENSOR.format('output')}",
    }.items()
}
BENCHMARK = (
    r"\[{0}\] Rank (?P<rank>\d+): {0}\(world_size=(?P<world_size>\d+), num_elements=(?P<num_elements>\d+)\) took "
    + DURATION
)
BANDWIDTH = r"\[{0}\] Rank (?P<rank>\d+): {0} measured bandwidth = (?P<bandwidth>\d+(?:\.\d+)?(?:e-\d+)?) GB/s"
LINES = BEFORE_AND_AFTER | {
    "all_reduce took": BENCHMARK.format("all_reduce"),
    "all_reduce bandwidth": BANDWIDTH.format("all_reduce"),
    "reduce_scatter took": BENCHMARK.format("reduce_scatter"),
    "reduce_scatter bandwidth": BANDWIDTH.format("reduce_scatter"),
    "data_parallelism": r"\[data_parallelism\] Rank (?P<rank>\d+): step = (?P<step>\d+), loss = (?P<loss>\d+\.\d+), "
    rf"params = (?P<params>\['{SUMMARY}'(?:, '{SUMMARY}')*\])",
    "tensor_parallelism": r"\[tensor_parallelism\] Rank (?P<rank>\d+): forward pass produced activations "
    rf"(?P<activations>{SUMMARY})",
    "pipeline_parallelism": r"\[pipeline_parallelism\] Rank (?P<rank>\d+): sending (?P<sent>32x1024.*) "
    r"to rank (?P<to>\d+)",
}


@dataclass(frozen=True)
class Line:
    """One line of the log: which of LINES it is, and its fields."""

    kind: str
    fields: dict[str, str]

    @property
    def rank(self) -> int:
        """The rank that printed it."""
        return int(self.fields["rank"])


def parse_log(log: str) -> list[Line]:
    """The lines of a log. Raises ValueError for one that the contract does not know, or that is torn."""
    return [_parse_line(line) for line in log.splitlines()]


def _parse_line(line: str) -> Line:
    for kind, pattern in LINES.items():
        if match := re.fullmatch(pattern, line):
            return Line(kind, match.groupdict())
    raise ValueError(f"Not a line of the contract: {line!r}")


def check_log(log: str, world_sizes: dict[str, int]) -> None:
    """Assert that every rank printed each line that it should, and that the values in them are right.

    `world_sizes` says on how many ranks each kind of line was printed, for the kinds that were: the three collectives
    together are "collectives", the two benchmarks "benchmarks".
    """
    lines = parse_log(log)
    expected = Counter()
    for kind in LINES:
        group = kind if "parallelism" in kind else "collectives" if kind in BEFORE_AND_AFTER else "benchmarks"
        world_size = world_sizes.get(group, 0)
        if kind == "pipeline_parallelism":  # every rank but the last sends each of the 4 micro-batches
            expected.update({(kind, rank): 4 for rank in range(world_size - 1)})
        else:
            times = 2 if kind in BEFORE_AND_AFTER else 1
            expected.update({(kind, rank): times for rank in range(world_size)})
    assert Counter((line.kind, line.rank) for line in lines) == expected

    for line in lines:
        if line.kind in BEFORE_AND_AFTER:
            check_collective(line, world_sizes["collectives"])
        elif line.kind.endswith("took"):
            assert int(line.fields["world_size"]) == world_sizes["benchmarks"]
        elif line.kind.endswith("bandwidth"):
            assert (float(line.fields["bandwidth"]) > 0) == (world_sizes["benchmarks"] > 1)
        elif line.kind == "pipeline_parallelism":
            assert int(line.fields["to"]) == line.rank + 1
    params = [line.fields["params"] for line in lines if line.kind == "data_parallelism"]
    losses = [line.fields["loss"] for line in lines if line.kind == "data_parallelism"]
    assert len(set(params)) <= 1, "parameters are the same on every rank"
    assert len(set(losses)) == len(losses), "losses differ from rank to rank"
    assert len({line.fields["activations"] for line in lines if line.kind == "tensor_parallelism"}) <= 1


def check_collective(line: Line, world_size: int) -> None:
    """Assert that a line before or after a collective shows what its definition says."""
    all_reduce_inputs = [np.arange(4) + rank for rank in range(world_size)]
    reduce_scatter_inputs = [np.arange(world_size) + rank for rank in range(world_size)]
    reduce_scatter_outputs = COLLECTIVES["reduce-scatter"].function(reduce_scatter_inputs)
    inputs, room = {
        "all-reduce": (all_reduce_inputs, None),
        "reduce-scatter": (reduce_scatter_inputs, 1),
        "all-gather": (reduce_scatter_outputs, world_size),
    }[line.kind]
    outputs = COLLECTIVES[line.kind].function(inputs)
    after = line.fields["when"] == "after"
    if room is None:  # in place
        assert numbers(line.fields["input"]) == list((outputs if after else inputs)[line.rank])
        return
    assert numbers(line.fields["input"]) == list(inputs[line.rank])
    assert numbers(line.fields["output"]) == (list(outputs[line.rank]) if after else [0] * room)


def numbers(tensor: str) -> list[float]:
    """The elements of a printed tensor of floats. Raises ValueError if one is written as an integer."""
    if not all("." in number for number in tensor.split(",")):
        raise ValueError(f"integers instead of floats: {tensor}")
    return [float(number) for number in tensor.split(",")]
