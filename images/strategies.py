"""The training strategies: which part of the data and of the layers each rank has, and what it sends."""

from canvas import MARGIN, PAPER, QUIET, RANKS, Canvas, pale

BATCH, DIMENSION, LAYERS = 128, 1024, 4
PIPELINE_RANKS, MICRO_BATCHES = 2, 4
WEIGHTS = f"{DIMENSION}×{DIMENSION}"


def draw_key(canvas: Canvas, y: float, solid: str, thin: str) -> None:
    """What a solid and a pale fill mean."""
    for x, fill, words in ((MARGIN, RANKS[0], solid), (MARGIN + 250, pale(RANKS[0]), thin)):
        canvas.box(x, y - 7, 14, 14, fill=fill, edge=RANKS[0], radius=2)
        canvas.text(x + 22, y, words, colour=QUIET, align="left")


def draw_data_parallelism(width: int) -> Canvas:
    """A row per rank, a column per layer; the batch is cut."""
    canvas = Canvas(width, 356)
    top, row, data, first, pitch = 56, 46, 88, 186, 98
    bottom = top + len(RANKS) * row
    canvas.text(data + 38, 35, f"data {BATCH}×{DIMENSION}", bold=True)
    for layer in range(LAYERS):
        x = first + layer * pitch
        canvas.text(x + 38, 35, f"layer {layer}", bold=True)
        canvas.line((x + 38, top + row / 2), (x + 38, bottom + 12), colour=QUIET)
        canvas.box(x, bottom + 12, 76, 26, "all-reduce")
    for rank, colour in enumerate(RANKS):
        y = top + (rank + 0.5) * row
        canvas.rank_label(y, rank)
        canvas.box(data, y - row / 2, 76, row, f"{BATCH // len(RANKS)}×{DIMENSION}", fill=colour, edge=PAPER, radius=0)
        for layer in range(LAYERS):
            x = first + layer * pitch
            canvas.line((x - 21, y), (x - 1, y), colour=QUIET, arrow=True)
            canvas.box(x, y - 14, 76, 28, WEIGHTS, fill=pale(colour), edge=colour)
        end = first + LAYERS * pitch
        canvas.line((end - 21, y), (end - 1, y), colour=QUIET, arrow=True)
        canvas.box(end, y - 14, 40, 28, "loss", fill=colour)
    canvas.text(
        MARGIN,
        bottom + 66,
        f"After backward, all-reduce averages each layer's {WEIGHTS} gradient, so all copies stay equal.",
        align="left",
    )
    draw_key(canvas, bottom + 93, "solid: a part that only this rank has", "pale: a copy that every rank has")
    return canvas


def draw_tensor_parallelism(width: int) -> Canvas:
    """A row per rank, a column per layer; every weight matrix is cut."""
    canvas = Canvas(width, 328)
    top, row, data, first, pitch = 56, 46, 82, 166, 117
    bottom = top + len(RANKS) * row
    shard = DIMENSION // len(RANKS)
    canvas.text(data + 33, 35, "data", bold=True)
    for layer in range(LAYERS):
        x = first + layer * pitch
        canvas.text(x + 33, 35, f"layer {layer}", bold=True)
        canvas.box(x + 83, top, 20, bottom - top, "all-gather", turned=True)
    for rank, colour in enumerate(RANKS):
        y = top + (rank + 0.5) * row
        canvas.rank_label(y, rank)
        canvas.box(data, y - 14, 66, 28, f"{BATCH}×{DIMENSION}", fill=pale(colour), edge=colour)
        for layer in range(LAYERS):
            x = first + layer * pitch
            canvas.line((x - (17 if layer == 0 else 13), y), (x - 1, y), colour=QUIET, arrow=True)
            canvas.box(x, y - 14, 66, 28, f"{DIMENSION}×{shard}", fill=colour)
            canvas.line((x + 67, y), (x + 82, y), colour=QUIET, arrow=True)
    canvas.text(
        MARGIN,
        bottom + 38,
        f"A layer gives each rank {BATCH}×{shard} activations; "
        f"all-gather makes {BATCH}×{DIMENSION} of them on every rank.",
        align="left",
    )
    draw_key(canvas, bottom + 65, "solid: a part that only this rank has", "pale: a copy that every rank has")
    return canvas


def draw_pipeline_parallelism(width: int) -> Canvas:
    """A row per rank, a column per layer; the depth is cut."""
    canvas = Canvas(width, 284)
    data, first, pitch, break_width = 88, 196, 98, 26
    rows = (106, 206)
    micro_batch = f"{BATCH // MICRO_BATCHES}×{DIMENSION}"
    canvas.text(data + 38, 35, f"data {BATCH}×{DIMENSION}", bold=True)
    canvas.text(data + 38, rows[0] + 64, f"{MICRO_BATCHES} micro-batches", colour=QUIET)
    for index in range(MICRO_BATCHES):
        y = rows[0] - 50 + index * 25
        canvas.box(data, y, 76, 25, micro_batch, fill=RANKS[0], edge=PAPER, radius=0)
    for layer in range(LAYERS):
        rank = layer * PIPELINE_RANKS // LAYERS
        x = first + layer * pitch + rank * break_width
        canvas.text(x + 38, 35, f"layer {layer}", bold=True)
        if layer != LAYERS // PIPELINE_RANKS:
            canvas.line((x - (31 if layer == 0 else 21), rows[rank]), (x - 1, rows[rank]), colour=QUIET, arrow=True)
        canvas.box(x, rows[rank] - 14, 76, 28, WEIGHTS, fill=RANKS[rank])
    for rank, y in enumerate(rows):
        canvas.rank_label(y, rank)
    start, end = first + pitch + 77, first + 2 * pitch + break_width
    turn = (start + end) / 2
    canvas.line((start, rows[0]), (turn, rows[0]), (turn, rows[1]), (end - 1, rows[1]), colour=QUIET, arrow=True)
    canvas.text(turn + 14, rows[0], f"send to rank 1: {micro_batch} activations,\nonce per micro-batch", align="left")
    canvas.text(turn - 14, rows[1], "receive from rank 0", align="right")
    canvas.text(MARGIN, 258, "Only neighbouring stages talk, and only about activations at the cut.", align="left")
    return canvas
