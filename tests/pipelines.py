"""Pipeline schedules by their definitions: in which order each rank works, and when it can."""

from collections.abc import Callable
from fractions import Fraction

Pass = tuple[str, int]
"""What a rank does with a micro-batch, and which: ("forward", 3)."""

Order = Callable[[int, int, int], list[Pass]]
"""The passes of a rank, in order, given the rank, the number of ranks and that of micro-batches."""


def gpipe(rank: int, num_ranks: int, num_micro_batches: int) -> list[Pass]:
    """All forward passes, then all backward passes."""
    return [(name, each) for name in ("forward", "backward") for each in range(num_micro_batches)]


def one_forward_one_backward(rank: int, num_ranks: int, num_micro_batches: int) -> list[Pass]:
    """As many forward passes as there are ranks from this one to the last, then by turns, backward first."""
    forward = [("forward", each) for each in range(num_micro_batches)]
    backward = [("backward", each) for each in range(num_micro_batches)]
    ahead = min(num_ranks - rank, num_micro_batches)
    passes = forward[:ahead]
    for micro_batch in range(num_micro_batches):
        passes += backward[micro_batch : micro_batch + 1] + forward[ahead + micro_batch : ahead + micro_batch + 1]
    return passes


def idle(order: Order, num_ranks: int, num_micro_batches: int, backward: int) -> Fraction:
    """The part of the time that ranks wait, if a forward pass takes one unit and a backward pass `backward`."""
    duration = {"forward": 1, "backward": backward}
    todo = {rank: order(rank, num_ranks, num_micro_batches) for rank in range(num_ranks)}
    free = dict.fromkeys(todo, 0)
    done: dict[tuple[int, Pass], int] = {(-1, ("forward", each)): 0 for each in range(num_micro_batches)}
    while any(todo.values()):
        for rank, passes in todo.items():
            while passes:
                name, micro_batch = passes[0]
                if name == "forward":
                    needed = (rank - 1, ("forward", micro_batch))
                elif rank == num_ranks - 1:
                    needed = (rank, ("forward", micro_batch))
                else:
                    needed = (rank + 1, ("backward", micro_batch))
                if needed not in done:
                    break
                free[rank] = max(free[rank], done[needed]) + duration[name]
                done[rank, passes.pop(0)] = free[rank]
    total = max(free.values())
    return Fraction(total - num_micro_batches * sum(duration.values()), total)


def most_stored(passes: list[Pass]) -> int:
    """For how many micro-batches a rank keeps activations at the same time."""
    kept = most = 0
    for name, _ in passes:
        kept += 1 if name == "forward" else -1
        most = max(most, kept)
    return most
