"""The figures show what the definitions say, fit the page, and are what images/draw.py draws."""

import re
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from collectives import COLLECTIVES, Buffers

matplotlib = pytest.importorskip("matplotlib", reason="the figures' own requirements are in images/requirements.txt")
Image = pytest.importorskip("PIL.Image", reason="the figures' own requirements are in images/requirements.txt")

IMAGES = Path(__file__).resolve().parent.parent / "images"
sys.path.insert(0, str(IMAGES))

# ruff: noqa: E402 (found through the line above)
import draw
from bandwidths import ETHERNET, HBM, INFINIBAND, LADDER, NVLINK_5, NVSWITCH, PCIE_5, SHARED_MEMORY, rate
from canvas import RANKS, SHADE, Canvas
from collective_figures import FRAMED
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from pipeline_schedules import SCHEDULES, Pass, pipeline_schedule, simulate
from ring import Pieces, ring_all_reduce

CONTRACT = (
    "gpu-node-overview pcie-node bandwidth-ladder ranks broadcast scatter gather reduce all-gather reduce-scatter "
    "all-reduce ring-all-reduce all-to-all data-parallelism tensor-parallelism pipeline-parallelism pipeline-schedule "
    "pipeline-1f1b rank-to-wire"
).split()

# The lecture's table of the operations for four ranks, written out; None where a rank has nothing.
FOUR = [0, 1, 2, 3]
ONE_EACH = [[0], [1], [2], [3]]
FOUR_EACH = [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
COUNTING = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
TRANSPOSED = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
TABLE = {
    "broadcast": ([FOUR, None, None, None], [FOUR, FOUR, FOUR, FOUR]),
    "scatter": ([FOUR, None, None, None], ONE_EACH),
    "gather": (ONE_EACH, [FOUR, None, None, None]),
    "reduce": (ONE_EACH, [[6], None, None, None]),
    "all-gather": (ONE_EACH, [FOUR, FOUR, FOUR, FOUR]),
    "reduce-scatter": (FOUR_EACH, [[6], [10], [14], [18]]),
    "all-reduce": (FOUR_EACH, [[6, 10, 14, 18]] * 4),
    "all-to-all": (COUNTING, TRANSPOSED),
}


@pytest.fixture(scope="module")
def canvases() -> dict[str, Canvas]:
    """Every figure, drawn once."""
    return {name: draw.draw(name) for name in draw.PICTURES}


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every figure as the script writes it now."""
    folder = tmp_path_factory.mktemp("images")
    draw.write_all(folder)
    return folder


def as_lists(buffers: Buffers) -> list[list[int] | None]:
    return [None if array is None else array.tolist() for array in buffers]


def random_inputs(world_size: int, length: int) -> list[np.ndarray]:
    return list(np.random.default_rng(world_size).integers(-50, 50, (world_size, length)))


@pytest.mark.parametrize("name", TABLE)
def test_definition_gives_the_lectures_table(name: str) -> None:
    collective = COLLECTIVES[name]
    assert (as_lists(collective.example_inputs(4)), as_lists(collective.example_outputs(4))) == TABLE[name]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("chunk", [1, 3])
def test_definitions_agree_with_plain_loops_for_any_world_size(world_size: int, chunk: int) -> None:
    inputs = random_inputs(world_size, world_size * chunk)
    rows, ranks, length = [array.tolist() for array in inputs], range(world_size), world_size * chunk
    nothing = [None] * (world_size - 1)
    totals = [sum(row[i] for row in rows) for i in range(length)]
    joined = [value for row in rows for value in row]
    pieces = [slice(rank * chunk, (rank + 1) * chunk) for rank in ranks]
    expected = {
        "broadcast": [rows[0]] * world_size,
        "scatter": [rows[0][piece] for piece in pieces],
        "gather": [joined, *nothing],
        "reduce": [totals, *nothing],
        "all-gather": [joined] * world_size,
        "reduce-scatter": [totals[piece] for piece in pieces],
        "all-reduce": [totals] * world_size,
        "all-to-all": [[value for row in rows for value in row[piece]] for piece in pieces],
    }
    assert {name: as_lists(each.function(inputs)) for name, each in COLLECTIVES.items()} == expected


@pytest.mark.parametrize("name", ["scatter", "reduce-scatter", "all-to-all"])
def test_definition_refuses_what_cannot_be_cut_into_equal_chunks(name: str) -> None:
    with pytest.raises(ValueError, match="equal division"):
        COLLECTIVES[name].function(random_inputs(world_size=3, length=4))


@pytest.mark.parametrize("name", TABLE)
def test_collective_figure_shows_the_numbers_of_the_definition(name: str, canvases: dict[str, Canvas]) -> None:
    cells = canvases[name].cells
    collective = COLLECTIVES[name]
    before, after = as_lists(collective.example_inputs(4)), as_lists(collective.example_outputs(4))
    assert cells == {
        panel: [None if row is None else [str(value) for value in row] for row in rows]
        for panel, rows in (("before", before), ("after", after))
    }
    written = [label.get_text() for label, _ in canvases[name].labels if label.get_text().isdigit()]
    assert written == [word for panel in cells.values() for row in panel for word in row or []]


OWN_CELLS: dict[str, Callable[[int], int]] = {  # the rank that an output number comes from, told from the number
    "broadcast": lambda number: 0,
    "scatter": lambda number: 0,
    "gather": lambda number: number,
    "all-gather": lambda number: number,
    "all-to-all": lambda number: number // 4,
}


@pytest.mark.parametrize("name", TABLE)
def test_numbers_wear_the_colour_of_the_rank_they_came_from(name: str, canvases: dict[str, Canvas]) -> None:
    before, after = TABLE[name]
    expected = [RANKS[rank] for rank, row in enumerate(before) for _ in row or []]
    if name in OWN_CELLS:
        expected += [RANKS[OWN_CELLS[name](number)] for row in after for number in row or []]
    else:
        expected += [SHADE for row in after for _ in row or []]
    boxes = [box for label, box in canvases[name].labels if label.get_text().isdigit()]
    assert [to_hex(box.get_facecolor()).upper() for box in boxes] == expected


def test_every_figure_of_the_lecture_is_committed_and_no_other() -> None:
    assert sorted(path.stem for path in IMAGES.glob("*.png")) == sorted(CONTRACT) == sorted(draw.PICTURES)


@pytest.mark.parametrize("name", CONTRACT)
def test_file_is_small_opaque_described_and_twice_its_display_width(name: str) -> None:
    path = IMAGES / f"{name}.png"
    assert path.stat().st_size <= 40_000
    with Image.open(path) as image:
        assert image.width == 2 * int(image.text["Display-Width"]) == 2 * draw.PICTURES[name].width
        assert "transparency" not in image.info
        assert min(image.convert("RGB").getpixel((0, 0))) > 240, "the background is near white"
        assert re.fullmatch(r"(?:[^.]|\.(?=\d))+\.", image.text["Description"]), "the description is one sentence"


@pytest.mark.parametrize("name", CONTRACT)
def test_palette_keeps_every_fill_exactly(name: str, canvases: dict[str, Canvas]) -> None:
    shapes = [shape for shape in canvases[name].axes.patches if isinstance(shape, FancyBboxPatch)]
    fills = {to_hex(shape.get_facecolor()) for shape in shapes if shape.get_facecolor()[3]}
    with Image.open(IMAGES / f"{name}.png") as image:
        colours = {to_hex(np.divide(colour, 255)) for _, colour in image.convert("RGB").getcolors()}
    assert fills <= colours


def test_files_take_at_most_400_kilobytes_together() -> None:
    assert sum(path.stat().st_size for path in IMAGES.glob("*.png")) <= 400_000


@pytest.mark.parametrize("name", CONTRACT)
def test_text_is_legible_and_neither_clipped_nor_overlapping(name: str, canvases: dict[str, Canvas]) -> None:
    canvas = canvases[name]
    words = {label: label.get_text() for label, _ in canvas.labels}
    extents = {label: label.get_window_extent() for label in words}
    for label, box in canvas.labels:
        pixels = label.get_fontsize() * canvas.figure.dpi / 72
        assert pixels >= 22 - 1e-9, f"{words[label]!r} is {pixels} file pixels high, 11 px at display width"
        (left, bottom), (right, top) = extents[label].get_points()
        assert left >= 16 and bottom >= 16, f"{words[label]!r} runs out of the margin"
        assert right <= canvas.width * 2 - 16 and top <= canvas.height * 2 - 16, f"{words[label]!r} is clipped"
        if box:
            edges = box.get_window_extent()
            assert edges.x0 + 4 <= left and right <= edges.x1 - 4, f"{words[label]!r} is wider than its box"
            assert edges.y0 <= bottom and top <= edges.y1, f"{words[label]!r} is higher than its box"
    for one, other in combinations(words, 2):
        assert not extents[one].padded(-2).overlaps(extents[other]), f"{words[one]!r} overlaps {words[other]!r}"


def test_points_lie_in_order_at_the_logarithm_of_their_bandwidth(canvases: dict[str, Canvas]) -> None:
    bandwidths = [link.bandwidth for link in LADDER]
    assert bandwidths == sorted(bandwidths, reverse=True)
    points = [patch.center for patch in canvases["bandwidth-ladder"].axes.patches if isinstance(patch, Circle)]
    assert [y for _, y in points] == sorted(y for _, y in points)
    slope, intercept = np.polyfit(np.log10(bandwidths), [x for x, _ in points], 1)
    assert slope > 0
    assert np.allclose([x for x, _ in points], slope * np.log10(bandwidths) + intercept)
    words = [label.get_text() for label, _ in canvases["bandwidth-ladder"].labels]
    ratios = [a.bandwidth / b.bandwidth for a, b in ((HBM, NVLINK_5), (NVLINK_5, INFINIBAND), (HBM, INFINIBAND))]
    assert [f"÷ {ratio:.2g}" for ratio in ratios] == ["÷ 4.4", "÷ 18", "÷ 80"]
    assert [word for word in words if word.startswith("÷")] == ["÷ 4.4", "÷ 18", "÷ 80"]
    axis = [rate(10.0**power) for power in range(-1, 6)]
    assert [word for word in words if word.endswith("B/s")] == [
        *axis,
        *("≈ 30 TB/s", "8 TB/s", "1.8 TB/s", "900 GB/s", "484 GB/s", "126 GB/s", "100 GB/s", "0.25 GB/s"),
    ]


def test_bandwidths_count_both_directions() -> None:
    each_way = {NVLINK_5: 18 * 50, INFINIBAND: 400 / 8, PCIE_5: 63, ETHERNET: 1 / 8}  # GB/s: 18 links; Gb/s / 8
    assert {link: link.bandwidth for link in each_way} == {link: 2 * one for link, one in each_way.items()}
    assert NVSWITCH.bandwidth == 8 * NVLINK_5.bandwidth, "the NVSwitch chips serve eight GPUs at full rate"
    assert SHARED_MEMORY.bandwidth == pytest.approx(32 * 4 * 132 * 1.8), "banks × bytes × SMs × GHz of an H100"
    assert INFINIBAND.each_way == "50 GB/s"


@pytest.mark.parametrize("name", ["bandwidth-ladder", "gpu-node-overview"])
def test_figures_of_bandwidths_say_what_they_count(name: str, canvases: dict[str, Canvas]) -> None:
    words = " ".join(label.get_text() for label, _ in canvases[name].labels)
    assert "both directions (reads and writes) together" in words
    assert "each way" not in words
    assert "nominal" in words, "an HGX B200 has less than 8 TB/s"
    assert "H100" in words, "L1's bandwidth is another GPU's"


def test_wire_figure_marks_the_copies_and_shows_none_with_rdma(canvases: dict[str, Canvas]) -> None:
    canvas = canvases["rank-to-wire"]
    tensors = [(label.get_position()[0], box) for label, box in canvas.labels if label.get_text() == "tensor"]
    copies = [x for x, box in tensors if to_hex(box.get_facecolor()).upper() != RANKS[0]]
    originals = [x for x, box in tensors if to_hex(box.get_facecolor()).upper() == RANKS[0]]
    assert [x < canvas.width / 2 for x in originals] == [True, False]
    assert [x < canvas.width / 2 for x in copies] == [True, True], "both copies are without RDMA"
    words = [label.get_text() for label, _ in canvas.labels]
    assert [word.split(",")[0] for word in words if word.startswith("copy")] == ["copy 1", "copy 2"]


def framed_numbers(canvas: Canvas) -> list[int]:
    """The numbers inside the frames, in the order in which they are written."""
    frames = [patch.get_bbox() for patch in canvas.axes.patches if type(patch) is Rectangle]
    labels = [label for label, _ in canvas.labels if label.get_text().isdigit()]
    return [int(label.get_text()) for label in labels if any(frame.contains(*label.get_position()) for frame in frames)]


@pytest.mark.parametrize("name", FRAMED)
def test_frames_follow_numbers_from_before_to_where_they_are_after(name: str, canvases: dict[str, Canvas]) -> None:
    before, after = TABLE[name]
    column = [row[1] for row in before]
    expected = {
        "reduce-scatter": [sum(column)],
        "all-reduce": [sum(column)] * 4,
        "all-to-all": column,
    }[name]
    assert framed_numbers(canvases[name]) == column + expected
    assert framed_numbers(canvases["broadcast"]) == []


RINGS = [(1, 3), (2, 1), (3, 2), (4, 1), (5, 3)]  # ranks, and numbers in a piece


def finished_pieces(held: Pieces) -> list[list[int]]:
    """For each rank, the positions of the pieces that it holds summed over all ranks."""
    return [[at for at, piece in enumerate(row) if len(piece.ranks) == len(held)] for row in held]


@pytest.mark.parametrize(("n", "size"), RINGS)
def test_ring_is_a_reduce_scatter_and_then_an_all_gather(n: int, size: int) -> None:
    inputs = random_inputs(n, n * size)
    steps, end = ring_all_reduce(inputs)
    assert len(steps) == 2 * (n - 1)
    between = steps[n - 1].before if steps else end
    assert finished_pieces(between) == [[rank] for rank in range(n)], "in between, each rank has one finished piece"
    assert [[piece.needed for piece in row] for row in between] == np.eye(n, dtype=bool).tolist()
    for rank, chunk in enumerate(np.split(np.sum(inputs, axis=0), n)):
        assert between[rank][rank].values.tolist() == chunk.tolist()
    for row in end:
        assert np.concatenate([piece.values for piece in row]).tolist() == np.sum(inputs, axis=0).tolist()
        assert all(piece.needed for piece in row)


@pytest.mark.parametrize(("n", "size"), RINGS)
def test_ring_pieces_are_the_sums_that_their_colours_say_and_move_to_the_next_rank(n: int, size: int) -> None:
    inputs = random_inputs(n, n * size)
    pieces = np.reshape(inputs, (n, n, size))
    steps, end = ring_all_reduce(inputs)
    states = [*(step.before for step in steps), end]
    for held in states:
        for row in held:
            for at, piece in enumerate(row):
                assert piece.values.tolist() == pieces[sorted(piece.ranks), at].sum(axis=0).tolist()
    for index, (step, after) in enumerate(zip(steps, states[1:], strict=True)):
        for rank, sent in enumerate(step.sent):
            assert step.before[rank][sent].needed, "what is sent was not passed on before"
            receiver = (rank + 1) % n
            changed = [at for at in range(n) if after[receiver][at].ranks != step.before[receiver][at].ranks]
            assert changed == [sent], "each rank receives one piece in a step, from the rank before it"
            grown = len(after[receiver][sent].ranks)
            assert grown == (index + 2 if index < n - 1 else n), "a sum grows by one rank in a step"


@pytest.mark.parametrize(("n", "size"), RINGS)
def test_each_rank_of_the_ring_sends_what_nccl_tests_counts(n: int, size: int) -> None:
    steps, _ = ring_all_reduce(random_inputs(n, n * size))
    for rank in range(n):
        sent = sum(len(step.before[rank][step.sent[rank]].values) for step in steps)
        assert Fraction(sent, n * size) == Fraction(2 * (n - 1), n)


def test_ring_figure_shows_every_step(canvases: dict[str, Canvas]) -> None:
    canvas = canvases["ring-all-reduce"]
    sums = [str(number) for number in TABLE["all-reduce"][1][0]]
    assert list(canvas.cells) == [
        *("step 1", "step 2", "step 3", "after step 3"),
        *("step 4", "step 5", "step 6", "after step 6"),
    ]
    assert canvas.cells["step 1"] == [[str(number) for number in row] for row in FOUR_EACH]
    one_sum_each = [[sums[rank] if at == rank else "" for at in range(4)] for rank in range(4)]
    assert canvas.cells["after step 3"] == canvas.cells["step 4"] == one_sum_each
    assert canvas.cells["after step 6"] == [sums] * 4
    written = [label.get_text() for label, _ in canvas.labels if label.get_text().isdigit()]
    assert written == [word for panel in canvas.cells.values() for row in panel for word in row if word]
    finished = [len([word for row in canvas.cells[panel] for word in row if word]) for panel in list(canvas.cells)[3:]]
    assert len(framed_numbers(canvas)) == sum(finished)
    assert any("each 1/n = 1/4 of its data: 1.5 times its data" in label.get_text() for label, _ in canvas.labels)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 4, 7])
def test_pipeline_schedule_is_possible_and_idles_as_the_formula_says(ranks: int, micro_batches: int) -> None:
    schedule = pipeline_schedule(ranks, micro_batches)
    for row in schedule:
        assert [each for each in row if each is not None] == list(range(micro_batches))
    for earlier, later in zip(schedule, schedule[1:], strict=False):
        assert all(earlier.index(each) < later.index(each) for each in range(micro_batches))
    cells = [each for row in schedule for each in row]
    assert cells.count(None) / len(cells) == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))


def test_pipeline_figure_states_the_bubble_fraction(canvases: dict[str, Canvas]) -> None:
    words = " ".join(label.get_text() for label, _ in canvases["pipeline-schedule"].labels)
    assert "(p − 1)/(m + p − 1) = (2 − 1)/(4 + 2 − 1) = 1/5" in words
    assert words.count("bubble ") == 3, "two idle slots and the formula"


SIZES = [(1, 3), (2, 1), (4, 2), (4, 8), (3, 7)]  # ranks, micro-batches


def grid(times: list[list[Pass]]) -> np.ndarray:
    """For each rank and time slot, what is computed: 1 forward, 2 backward, 0 nothing. Fails where passes overlap."""
    slots = np.zeros((len(times), max(each.end for passes in times for each in passes)), dtype=int)
    for rank, passes in enumerate(times):
        for each in passes:
            assert not slots[rank, each.start : each.end].any(), f"rank {rank} does two things at once: {each}"
            slots[rank, each.start : each.end] = 1 + each.backward
    return slots


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_schedule_is_possible_and_has_the_bubble_of_the_formula(name: str, ranks: int, micro_batches: int) -> None:
    times = simulate(SCHEDULES[name][1], ranks, micro_batches)
    slots = grid(times)
    assert (slots == 1).sum(axis=1).tolist() == [micro_batches] * ranks
    assert (slots == 2).sum(axis=1).tolist() == [2 * micro_batches] * ranks, "backward is twice as long"
    assert (slots == 0).mean(axis=1) == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))
    passes = {(rank, each.micro_batch, each.backward): each for rank, row in enumerate(times) for each in row}
    assert len(passes) == 2 * ranks * micro_batches, "each micro-batch goes once through each stage, both ways"
    for rank in range(ranks):
        for index in range(micro_batches):
            forward, backward = passes[rank, index, False], passes[rank, index, True]
            assert forward.end <= backward.start
            if rank:
                assert passes[rank - 1, index, False].end <= forward.start, "activations come from the stage before"
                assert backward.end <= passes[rank - 1, index, True].start, "gradients go to the stage before"


def stored(passes: list[Pass], micro_batches: int) -> int:
    """The most micro-batches in any time slot that are between the start of forward and the end of backward."""
    first = {each.micro_batch: each.start for each in passes if not each.backward}
    last = {each.micro_batch: each.end for each in passes if each.backward}
    slots = np.arange(max(last.values()))
    return max(sum((first[index] <= slots) & (slots < last[index]) for index in range(micro_batches)))


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_1f1b_stores_less_than_gpipe(ranks: int, micro_batches: int) -> None:
    gpipe, alternating = (simulate(order, ranks, micro_batches) for _, order in SCHEDULES.values())
    assert [stored(passes, micro_batches) for passes in gpipe] == [micro_batches] * ranks
    bounds = [min(micro_batches, ranks - rank) for rank in range(ranks)]
    assert [stored(passes, micro_batches) for passes in alternating] == bounds


def test_order_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate(lambda rank, ranks, m: [Pass(0, backward) for backward in (rank == 0, rank != 0)], 2, 1)


def test_1f1b_figure_draws_the_simulated_times(canvases: dict[str, Canvas]) -> None:
    canvas = canvases["pipeline-1f1b"]
    boxes = [(label.get_text(), box) for label, box in canvas.labels if box and label.get_text().isdigit()]
    expected = [
        (str(each.micro_batch), each.start, each.end - each.start)
        for _, order in SCHEDULES.values()
        for passes in simulate(order, 4, 8)
        for each in passes
    ]
    slot = min(box.get_width() for _, box in boxes) + 2
    left = min(box.get_x() for _, box in boxes)
    assert expected == [
        (word, round((box.get_x() - left) / slot), round((box.get_width() + 2) / slot)) for word, box in boxes
    ]
    counts = [label.get_text() for label, box in canvas.labels if not box and label.get_text().isdigit()]
    assert counts == ["8", "8", "8", "8", "4", "3", "2", "1"]
    assert any("= 3/11 of each rank's time" in label.get_text() for label, _ in canvas.labels)


def test_script_draws_the_same_bytes_whatever_the_readers_settings(redrawn: Path, tmp_path: Path) -> None:
    settings = {
        "text.hinting": "none",
        "lines.linewidth": 9,
        "hatch.linewidth": 5,
        "font.size": 30,
        "path.sketch": (9, 9, 9),
    }
    with matplotlib.rc_context(settings):
        draw.write_all(tmp_path)
    assert {
        path.name for path in redrawn.iterdir() if path.read_bytes() != (tmp_path / path.name).read_bytes()
    } == set()


def test_committed_files_are_what_the_script_draws(redrawn: Path) -> None:
    for pin in re.findall(r"^\w+==\S+", (IMAGES / "requirements.txt").read_text(), re.MULTILINE):
        package, pinned = pin.split("==")
        if version(package) != pinned:
            pytest.skip(
                f"{package} is {version(package)}; the files are drawn with {pinned}: see images/requirements.txt"
            )
    stale = [path.name for path in redrawn.iterdir() if path.read_bytes() != (IMAGES / path.name).read_bytes()]
    assert stale == [], "run `python images/draw.py`"
