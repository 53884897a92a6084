"""The eight collective operations, defined once, in plain numpy.

Each definition goes from the list of every rank's input to the list of every rank's output. Entry r belongs to rank r
and is an array, or None where rank r contributes or receives nothing. Arrays are cut and joined along their first
dimension; one that cannot be cut into equal chunks raises numpy's ValueError.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Buffers = list[np.ndarray | None]
ROOT = 0


def only_at_root(value: np.ndarray, world_size: int) -> Buffers:
    """`value` at the root, nothing anywhere else."""
    return [value if rank == ROOT else None for rank in range(world_size)]


def broadcast(inputs: Buffers) -> Buffers:
    """Every rank receives a copy of the root's array."""
    return [inputs[ROOT].copy() for _ in inputs]


def scatter(inputs: Buffers) -> Buffers:
    """Rank r receives chunk r of the root's array."""
    return np.split(inputs[ROOT], len(inputs))


def gather(inputs: Buffers) -> Buffers:
    """The root receives every rank's array, joined in rank order."""
    return only_at_root(np.concatenate(inputs), len(inputs))


def reduce(inputs: Buffers) -> Buffers:
    """The root receives the elementwise sum over the ranks."""
    return only_at_root(np.sum(inputs, axis=0), len(inputs))


def all_gather(inputs: Buffers) -> Buffers:
    """Every rank receives every rank's array, joined in rank order."""
    return [np.concatenate(inputs) for _ in inputs]


def reduce_scatter(inputs: Buffers) -> Buffers:
    """Rank r receives chunk r of the elementwise sum: W·k elements in, k elements out."""
    return np.split(np.sum(inputs, axis=0), len(inputs))


def all_reduce(inputs: Buffers) -> Buffers:
    """Every rank receives the elementwise sum over the ranks."""
    return [np.sum(inputs, axis=0) for _ in inputs]


def all_to_all(inputs: Buffers) -> Buffers:
    """Chunk s of rank r becomes chunk r of rank s: the transpose of the world_size × world_size table of chunks."""
    chunks = [np.split(array, len(inputs)) for array in inputs]
    return [np.concatenate(column) for column in zip(*chunks, strict=True)]


@dataclass(frozen=True)
class Collective:
    """An operation, and the inputs that the lecture shows it with."""

    name: str
    function: Callable[[Buffers], Buffers]
    example_inputs: Callable[[int], Buffers]

    def example_outputs(self, world_size: int) -> Buffers:
        """What the definition makes of the example inputs."""
        return self.function(self.example_inputs(world_size))


def counting_at_root(world_size: int) -> Buffers:
    """Rank 0: 0, 1, …, W − 1; the other ranks: nothing."""
    return only_at_root(np.arange(world_size), world_size)


def own_rank(world_size: int) -> Buffers:
    """Rank r: the single element r."""
    return [np.array([rank]) for rank in range(world_size)]


def counting_from_rank(world_size: int) -> Buffers:
    """Rank r: r, r + 1, …, r + W − 1."""
    return [np.arange(world_size) + rank for rank in range(world_size)]


def counting_through(world_size: int) -> Buffers:
    """Rank r: W·r, …, W·r + W − 1, so that no number occurs twice."""
    return [np.arange(world_size) + world_size * rank for rank in range(world_size)]


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective("broadcast", broadcast, counting_at_root),
        Collective("scatter", scatter, counting_at_root),
        Collective("gather", gather, own_rank),
        Collective("reduce", reduce, own_rank),
        Collective("all-gather", all_gather, own_rank),
        Collective("reduce-scatter", reduce_scatter, counting_from_rank),
        Collective("all-reduce", all_reduce, counting_from_rank),
        Collective("all-to-all", all_to_all, counting_through),
    )
}


def sources(collective: Collective, inputs: Buffers) -> list[list[list[int]] | None]:
    """For every rank's every output element, the ranks whose input went into it.

    The operation runs on tags instead of data: every element of rank r becomes the bit 1 << r. Copying keeps a tag and
    summing over ranks joins tags, so the bits set in an output element name its sources.
    """
    tags = [None if array is None else np.full_like(array, 1 << rank) for rank, array in enumerate(inputs)]
    return [
        None if array is None else [[rank for rank in range(len(inputs)) if tag >> rank & 1] for tag in array.tolist()]
        for array in collective.function(tags)
    ]


def reached(collective: Collective, inputs: Buffers, position: int) -> list[list[bool] | None]:
    """For every rank's every output element, whether an input at `position` of any rank went into it."""
    tags = [None if array is None else (np.arange(len(array)) == position).astype(int) for array in inputs]
    return [None if array is None else [bool(tag) for tag in array] for array in collective.function(tags)]
