"""All-reduce around a ring, simulated piece by piece, and the figure of its steps."""

from dataclasses import dataclass, replace

import numpy as np
from canvas import LARGE, LINE, MARGIN, NORMAL, PAPER, QUIET, RANKS, Canvas
from collective_figures import draw_number
from collectives import COLLECTIVES


@dataclass(frozen=True)
class Piece:
    """What a rank holds of one piece of the data: a sum over `ranks`, no longer needed once it is passed on."""

    values: np.ndarray
    ranks: frozenset[int]
    needed: bool = True


Pieces = list[list[Piece]]  # [rank][position in the data]


@dataclass(frozen=True)
class Step:
    """What each rank holds before the step, and which piece it sends to the next rank."""

    before: Pieces
    sent: list[int]


def ring_all_reduce(inputs: list[np.ndarray]) -> tuple[list[Step], Pieces]:
    """The 2(n − 1) steps among n ranks, and what each holds in the end.

    The first n − 1 are a reduce-scatter: a rank adds what arrives, and ends with the finished sum of the piece of its
    own number. The others are an all-gather: a rank keeps what arrives. Raises ValueError where n does not divide
    the data.
    """
    n = len(inputs)
    held = [[Piece(values, frozenset({rank})) for values in np.split(data, n)] for rank, data in enumerate(inputs)]
    steps = []
    for index in range(2 * (n - 1)):
        sent = [(rank - 1 - index) % n for rank in range(n)]
        steps.append(Step(held, sent))
        before, held = held, [list(pieces) for pieces in held]
        for rank, position in enumerate(sent):
            receiver, arriving = (rank + 1) % n, before[rank][position]
            if index < n - 1:
                own = before[receiver][position]
                held[receiver][position] = Piece(own.values + arriving.values, own.ranks | arriving.ranks)
                held[rank][position] = replace(arriving, needed=False)
            else:
                held[receiver][position] = arriving
    return steps, held


PITCH, CELL, ROW, PANEL_GAP = 31, 28, 47, 20


def draw_ring_all_reduce(width: int) -> Canvas:
    """A panel per step: what each rank holds, and an arrow from each piece that is sent to where it arrives."""
    canvas = Canvas(width, 663)
    steps, end = ring_all_reduce(COLLECTIVES["all-reduce"].example_inputs(len(RANKS)))
    half = len(steps) // 2
    canvas.text(MARGIN, 28, "all-reduce around a ring", LARGE, align="left", bold=True)
    bands = (
        (58, "reduce-scatter: add what arrives to your own", steps[:half], steps[half].before),
        (330, "all-gather: keep what arrives", steps[half:], end),
    )
    done = 0
    for top, title, band_steps, result in bands:
        canvas.text(MARGIN, top, title, NORMAL, align="left", bold=True)
        for rank in range(len(RANKS)):
            canvas.rank_label(top + 60 + rank * ROW + CELL / 2, rank)
        for column, step in enumerate(band_steps):
            done += 1
            draw_panel(canvas, column, top + 60, f"step {done}", step.before, step.sent)
        draw_panel(canvas, len(band_steps), top + 60, f"after step {done}", result)
    n, pieces = len(RANKS), len(steps)
    canvas.text(
        MARGIN,
        615,
        "grey: a sum, over the colours of the ranks in it; framed: the sum of all ranks\n"
        "empty: passed on and no longer needed; arrow: to the next rank, from rank 3 to rank 0\n"
        f"A rank sends 2(n − 1) = {pieces} pieces, each 1/n = 1/{n} of its data: {pieces / n:g} times its data.",
        NORMAL,
        align="left",
    )
    return canvas


def draw_panel(
    canvas: Canvas, column: int, top: float, title: str, held: Pieces, sent: list[int] | None = None
) -> None:
    """A row per rank of what it holds; arrows run down, out at the bottom and in again at the top."""
    left = MARGIN + 62 + column * (3 * PITCH + CELL + PANEL_GAP)
    canvas.text(left, top - 34, title, NORMAL, align="left", colour=QUIET)
    canvas.cells[title] = [[str(piece.values.item()) if piece.needed else "" for piece in row] for row in held]
    for rank, position in enumerate(sent or []):
        x, y = left + position * PITCH + CELL / 2, top + rank * ROW + CELL
        canvas.line((x, y), (x, y + ROW - CELL), colour=RANKS[rank], width=2, arrow=True)
        if rank == len(held) - 1:
            canvas.line((x, top - ROW + CELL), (x, top), colour=RANKS[rank], width=2, arrow=True)
    for rank, pieces in enumerate(held):
        for position, piece in enumerate(pieces):
            x, y, word = left + position * PITCH, top + rank * ROW, canvas.cells[title][rank][position]
            if piece.needed:
                draw_number(canvas, x, y, CELL, word, sorted(piece.ranks))
            else:
                canvas.box(x, y, CELL, CELL, fill=PAPER, edge=LINE)
            if len(piece.ranks) == len(held):
                canvas.frame(x, y, CELL, CELL)
