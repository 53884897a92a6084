"""The ranks, and the eight collective operations as the definitions in tests/collectives.py have them."""

import sys
from pathlib import Path

from canvas import LARGE, LINE, MARGIN, QUIET, RANKS, SHADE, Canvas, ink_on, pale

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from collectives import COLLECTIVES, Buffers, reached, sources  # noqa: E402 (found through the line above)


def draw_ranks(width: int) -> Canvas:
    """Four processes and what joins them."""
    canvas = Canvas(width, 194)
    card, gap = (width - 2 * MARGIN - 3 * 16) / 4, 16
    for rank, colour in enumerate(RANKS):
        x = MARGIN + rank * (card + gap)
        canvas.box(x, 20, card, 104, fill=pale(colour), edge=colour)
        canvas.box(x, 20, card, 34, f"rank {rank}", size=LARGE, bold=True, fill=colour, edge=colour)
        canvas.text(x + card / 2, 88, "a process,\nits own memory,\nits own device")
        canvas.line((x + card / 2, 124), (x + card / 2, 144), colour=QUIET)
    canvas.box(MARGIN, 144, width - 2 * MARGIN, 32, "world size 4: the ranks share nothing but messages")
    return canvas


def draw_collective(name: str, width: int) -> Canvas:
    """Before on the left, after on the right, a row per rank, and a line wherever a rank's numbers go.

    Where every rank sends to every rank, frames follow one position of each input, and lines to other ranks are pale.
    """
    collective = COLLECTIVES[name]
    inputs = collective.example_inputs(len(RANKS))
    own = [None if array is None else [[rank]] * len(array) for rank, array in enumerate(inputs)]
    origins = sources(collective, inputs)
    sums = any(len(ranks) > 1 for row in origins if row for ranks in row)
    framed_before, framed_after = [[False] * 4] * 4, [[False] * 4] * 4
    if name in FRAMED:
        framed_before = [[index == 1 for index in range(len(array))] for array in inputs]
        framed_after = reached(collective, inputs, position=1)

    canvas = Canvas(width, 258)
    row, cell = 46, 36
    before, after = MARGIN + 74, width - MARGIN - 4 * cell
    middles = [88 + rank * row for rank in range(len(RANKS))]
    canvas.text(MARGIN, 28, name, size=LARGE, align="left", bold=True)
    key = "grey: a sum over the four ranks" if sums else "colour: the rank it came from"
    if name in FRAMED:
        key += f"\nframed: {FRAMED[name]}"
    canvas.text(width - MARGIN - 4, 29, key, colour=QUIET, align="right")
    canvas.text(before, 56, "before", colour=QUIET, align="left")
    canvas.text(after, 56, "after", colour=QUIET, align="left")
    for receiver, row_origins in enumerate(origins):
        for sender in sorted({rank for ranks in row_origins or [] for rank in ranks}):
            start = (before + len(inputs[sender]) * cell + 4, middles[sender])
            followed = name not in FRAMED or any(framed_after[receiver])
            colour = RANKS[sender] if followed else pale(RANKS[sender], 0.3)
            canvas.flow(start, (after - (24 if sums else 8), middles[receiver]), colour)
        if sums and row_origins:
            canvas.text(after - 14, middles[receiver], "+", size=LARGE, bold=True)
    for rank, middle in enumerate(middles):
        canvas.rank_label(middle, rank)
    draw_cells(canvas, "before", before, middles, cell, inputs, own, framed_before)
    draw_cells(canvas, "after", after, middles, cell, collective.function(inputs), origins, framed_after)
    return canvas


FRAMED = {
    "reduce-scatter": "the numbers that make rank 1's sum",
    "all-reduce": "the numbers that make one of the sums",
    "all-to-all": "the numbers that go to rank 1",
}
"""What the frames follow, where lines alone do not tell which of a rank's numbers goes where."""


def draw_cells(
    canvas: Canvas,
    panel: str,
    left: float,
    middles: list[float],
    pitch: float,
    buffers: Buffers,
    origins: list[list[list[int]] | None],
    framed: list[list[bool]],
) -> None:
    """A row of cells per rank, coloured by origin: a rank's colour, or for a sum grey over all four colours."""
    canvas.cells[panel] = [None if array is None else [str(value) for value in array] for array in buffers]
    size = pitch - 4
    longest = max(len(array) for array in buffers if array is not None)
    for middle, words, row_origins, row_framed in zip(middles, canvas.cells[panel], origins, framed, strict=True):
        top = middle - size / 2
        if words is None:
            canvas.box(left, top, longest * pitch - 4, size, fill="none", edge=LINE, dashed=True)
            continue
        for index, (word, ranks) in enumerate(zip(words, row_origins, strict=True)):
            draw_number(canvas, left + index * pitch, top, size, word, ranks)
        if any(row_framed):
            canvas.frame(left + row_framed.index(True) * pitch, top, sum(row_framed) * pitch - 4, size)


def draw_number(canvas: Canvas, x: float, y: float, size: float, word: str, ranks: list[int]) -> None:
    """A cell in the colour of the rank that its number is from; a sum's is grey, over the colours of its ranks."""
    is_sum = len(ranks) > 1
    fill = SHADE if is_sum else RANKS[ranks[0]]
    shape = canvas.box(x, y, size, size, fill=fill)
    canvas.text(x + size / 2, y + size / 2 - 3 * is_sum, word, LARGE, ink_on(fill), inside=shape)
    for rank in ranks if is_sum else ():
        width = (size - 6) / len(RANKS)
        canvas.box(x + 3 + rank * width, y + size - 7, width, 4, fill=RANKS[rank], radius=0)
