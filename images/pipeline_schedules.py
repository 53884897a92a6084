"""Pipeline schedules: what each rank computes when, and how long it waits."""

from fractions import Fraction

from canvas import LINE, MARGIN, NORMAL, PAPER, QUIET, RANKS, Canvas
from matplotlib.patches import Rectangle
from strategies import MICRO_BATCHES, PIPELINE_RANKS


def pipeline_schedule(ranks: int, micro_batches: int) -> list[list[int | None]]:
    """Per rank, the micro-batch that it computes in each time slot, forward only; None while it waits."""
    slots = range(micro_batches + ranks - 1)
    return [[slot - rank if 0 <= slot - rank < micro_batches else None for slot in slots] for rank in range(ranks)]


def bubble_fraction(ranks: int, micro_batches: int) -> Fraction:
    """The share of a rank's time slots in which it waits: (p − 1)/(m + p − 1)."""
    return Fraction(ranks - 1, micro_batches + ranks - 1)


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
                canvas.paint(
                    Rectangle((x + 1, top), slot - 2, height, fill=False, edgecolor=LINE, hatch="////", linewidth=0)
                )
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
