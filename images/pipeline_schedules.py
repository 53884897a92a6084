"""Pipeline schedules: what each rank computes when, and how long it waits."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from canvas import LARGE, LINE, MARGIN, NORMAL, PAPER, QUIET, RANKS, Canvas, pale
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve
from strategies import MICRO_BATCHES, PIPELINE_RANKS


def pipeline_schedule(ranks: int, micro_batches: int) -> list[list[int | None]]:
    """Per rank, the micro-batch that it computes in each time slot, forward only; None while it waits."""
    slots = range(micro_batches + ranks - 1)
    return [[slot - rank if 0 <= slot - rank < micro_batches else None for slot in slots] for rank in range(ranks)]


def bubble_fraction(ranks: int, micro_batches: int) -> Fraction:
    """The share of a rank's time slots in which it waits: (p − 1)/(m + p − 1)."""
    return Fraction(ranks - 1, micro_batches + ranks - 1)


def draw_bubble(canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
    """Hatching where a rank waits; lines that all meet the pixels in the same way make a small file."""
    spacing = 6
    sums = range(math.ceil((x + y) / spacing) * spacing, math.ceil(x + y + width + height), spacing)  # of x and y
    strokes = [point for each in sums for point in ((each - y - height, y + height), (each - y, y))]
    lines = PathPatch(
        Curve(strokes, [Curve.MOVETO, Curve.LINETO] * len(sums)), edgecolor=LINE, linewidth=0.72, fill=False
    )
    canvas.paint(lines)
    lines.set_clip_path(Rectangle((x, y), width, height, transform=canvas.axes.transData))


def draw_pipeline_schedule(width: int) -> Canvas:
    """Time runs to the right, one row per rank."""
    canvas = Canvas(width, 258)
    schedule = pipeline_schedule(PIPELINE_RANKS, MICRO_BATCHES)
    left, tops, height = 88, (24, 98), 46
    slot = (width - MARGIN - 8 - left) / len(schedule[0])
    for rank, (top, row) in enumerate(zip(tops, schedule, strict=True)):
        canvas.rank_label(top + height / 2, rank)
        for index, micro_batch in enumerate(row):
            x = left + index * slot
            if micro_batch is None:
                draw_bubble(canvas, x + 1, top, slot - 2, height)
                canvas.box(x + slot / 2 - 28, top + height / 2 - 11, 56, 22, "bubble", fill=PAPER)
                continue
            canvas.box(x + 1, top, slot - 2, height, f"micro-batch {micro_batch}", fill=RANKS[rank])
            if rank + 1 < PIPELINE_RANKS:
                canvas.line((x + slot, top + height + 3), (x + slot, tops[rank + 1] - 3), colour=QUIET, arrow=True)
    axis = tops[-1] + height + 14
    canvas.line((left, axis), (width - MARGIN, axis), colour=QUIET, arrow=True)
    for tick in range(len(schedule[0]) + 1):
        canvas.line((left + tick * slot, axis), (left + tick * slot, axis + 5), colour=QUIET)
        canvas.text(left + tick * slot, axis + 15, str(tick), colour=QUIET)
    canvas.text(MARGIN, axis, "time", colour=QUIET, align="left")
    p, m = PIPELINE_RANKS, MICRO_BATCHES
    canvas.text(
        left,
        axis + 52,
        f"bubble = (p − 1)/(m + p − 1) = ({p} − 1)/({m} + {p} − 1) = {bubble_fraction(p, m)} of each rank's time",
        NORMAL,
        align="left",
    )
    canvas.text(left, axis + 74, f"p = {p} ranks, m = {m} micro-batches, forward only", colour=QUIET, align="left")
    return canvas


THIN = [pale(colour, 0.3) for colour in RANKS]
FORWARD, BACKWARD = 1, 2  # time slots: a backward pass takes about twice the arithmetic of a forward pass


@dataclass(frozen=True)
class Pass:
    """The forward or backward pass of a micro-batch through one stage, from time slot `start` to `end`."""

    micro_batch: int
    backward: bool
    start: int = 0

    @property
    def end(self) -> int:
        """The time slot in which the stage is free again."""
        return self.start + (BACKWARD if self.backward else FORWARD)


Order = Callable[[int, int, int], list[Pass]]  # of a rank's passes, from rank, ranks and micro-batches


def gpipe(rank: int, ranks: int, micro_batches: int) -> list[Pass]:
    """All forward passes, then all backward passes: https://arxiv.org/abs/1811.06965."""
    return [Pass(index, backward) for backward in (False, True) for index in range(micro_batches)]


def one_forward_one_backward(rank: int, ranks: int, micro_batches: int) -> list[Pass]:
    """A backward pass after each forward pass, once the stages behind are busy: https://arxiv.org/abs/2104.04473."""
    ahead = min(ranks - 1 - rank, micro_batches)
    order = [Pass(index, False) for index in range(ahead)]
    for index in range(micro_batches):
        if index + ahead < micro_batches:
            order.append(Pass(index + ahead, False))
        order.append(Pass(index, True))
    return order


def simulate(order: Order, ranks: int, micro_batches: int) -> list[list[Pass]]:
    """Each rank's passes with their times: each starts once the rank is free and what it needs is there.

    A forward pass needs that of the stage before, a backward pass that of the stage behind. Sending takes no time.
    Raises ValueError if the order lets ranks wait for each other forever.
    """
    waiting = [order(rank, ranks, micro_batches) for rank in range(ranks)]
    done: list[list[Pass]] = [[] for _ in range(ranks)]
    ends: dict[tuple[int, int, bool], int] = {}
    while any(waiting):
        before = len(ends)
        for rank in range(ranks):
            while waiting[rank]:
                step = waiting[rank][0]
                source = rank + 1 if step.backward else rank - 1
                needed = (source, step.micro_batch, step.backward)
                if 0 <= source < ranks and needed not in ends:
                    break
                free = done[rank][-1].end if done[rank] else 0
                started = Pass(step.micro_batch, step.backward, max(free, ends.get(needed, 0)))
                done[rank].append(started)
                ends[rank, step.micro_batch, step.backward] = started.end
                waiting[rank].pop(0)
        if len(ends) == before:
            raise ValueError(f"ranks wait for each other: {waiting}")
    return done


def gaps(passes: list[Pass], total: int) -> list[tuple[int, int]]:
    """From when to when a rank waits, until the last rank is done at `total`."""
    ends, starts = [0, *(each.end for each in passes)], [*(each.start for each in passes), total]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def most_stored(passes: list[Pass]) -> int:
    """The most micro-batches whose activations a rank holds at a time, from their forward to their backward pass."""
    stored = [sum(-1 if each.backward else 1 for each in passes[: index + 1]) for index in range(len(passes))]
    return max(stored)


SCHEDULES: dict[str, tuple[str, Order]] = {
    "GPipe": ("all forward passes, then all backward passes", gpipe),
    "1F1B": ("after a start-up, a forward and a backward pass in turn", one_forward_one_backward),
}


def draw_pipeline_1f1b(width: int) -> Canvas:
    """Two schedules over the same time, a row per rank, and how many micro-batches each rank stores."""
    canvas = Canvas(width, 524)
    ranks, micro_batches = len(RANKS), 8
    left, slot, row, height, stored = MARGIN + 62, 15, 34, 28, width - MARGIN - 22
    tops = {"GPipe": 62, "1F1B": 254}
    canvas.text(stored, tops["GPipe"] - 24, "most\nstored", colour=QUIET)
    for name, (words, order) in SCHEDULES.items():
        top, times = tops[name], simulate(order, ranks, micro_batches)
        total = max(passes[-1].end for passes in times)
        canvas.text(MARGIN, top - 32, name, LARGE, align="left", bold=True)
        canvas.text(left, top - 32, words, NORMAL, align="left")
        for rank, passes in enumerate(times):
            y = top + rank * row
            canvas.rank_label(y + height / 2, rank)
            for start, end in gaps(passes, total):
                draw_bubble(canvas, left + start * slot + 0.5, y, (end - start) * slot - 1, height)
            for each in passes:
                x, length = left + each.start * slot + 1, (each.end - each.start) * slot - 2
                fill = THIN[rank] if each.backward else RANKS[rank]
                canvas.box(x, y, length, height, str(each.micro_batch), NORMAL, fill=fill, edge=RANKS[rank], radius=0)
            canvas.text(stored, y + height / 2, str(most_stored(passes)), LARGE, bold=True)
    axis = tops["1F1B"] + ranks * row + 6
    canvas.line((left, axis), (left + total * slot + 10, axis), colour=QUIET, arrow=True)
    canvas.text(MARGIN, axis, "time", NORMAL, QUIET, align="left")
    for x, fill, words in ((MARGIN, RANKS[0], "forward"), (MARGIN + 96, THIN[0], "backward, twice as long")):
        canvas.box(x, axis + 22, 15, 16, fill=fill, edge=RANKS[0], radius=0)
        canvas.text(x + 23, axis + 30, words, NORMAL, align="left")
    draw_bubble(canvas, MARGIN + 306, axis + 22, 30, 16)
    canvas.text(MARGIN + 344, axis + 30, "bubble", NORMAL, align="left")
    p, m = ranks, micro_batches
    canvas.text(
        MARGIN,
        axis + 82,
        f"p = {p} ranks, m = {m} micro-batches (the numbers)\n"
        f"bubble = (p − 1)/(m + p − 1) = {bubble_fraction(p, m)} of each rank's time, with both schedules\n"
        "most stored: micro-batches whose activations a rank holds at once",
        NORMAL,
        align="left",
    )
    return canvas
