"""Draws every figure of the lecture: `python images/draw.py` writes images/*.png, byte for byte the same each time.

Lengths are CSS pixels at the width at which the lecture shows a figure, y pointing down; the files hold twice as many.
"""

import io
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path as Curve
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

IMAGES = Path(__file__).resolve().parent
sys.path.insert(0, str(IMAGES.parent / "tests"))

from collectives import COLLECTIVES, Buffers, reached, sources  # noqa: E402 (found through the line above)

Colour = str | tuple[float, float, float]
Point = tuple[float, float]

SCALE = 2  # file pixels per CSS pixel
SMALL, NORMAL, LARGE = 11, 13, 15  # font sizes
MARGIN = 16
RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # Okabe and Ito: safe for colour-blind readers
INK, QUIET, LINE, SHADE, PAPER = "#222222", "#5A5A5A", "#A6A6A6", "#E7E7E3", "#FDFCFA"
PALETTE_SIZE, PALETTE_STEP, FLAT_COLOURS, FLAT_STEP = 48, 24, 12, 3
FONTS = {  # matplotlib's own copy, not the system's
    bold: FontProperties(fname=Path(matplotlib.get_data_path(), "fonts", "ttf", file))
    for bold, file in ((False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf"))
}


# ---------------------------------------------------------------------------------------------------- canvas


def ink_on(fill: Colour) -> str:
    """White on the dark blue of rank 0, near-black on every other fill."""
    return "#FFFFFF" if fill == RANKS[0] else INK


def pale(colour: str, part: float = 0.18) -> Colour:
    """The colour thinned with paper, of which it is `part`."""
    return tuple((1 - part) * paper + part * full for paper, full in zip(to_rgb(PAPER), to_rgb(colour), strict=True))


@dataclass
class Canvas:
    """One figure under construction, painted in the order of the calls.

    `labels` holds each text with the box that it was written into, and `cells` what the cells of a collective say.
    """

    width: int
    height: int
    labels: list[tuple[Text, Artist | None]] = field(default_factory=list)
    cells: dict[str, list[list[str] | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.figure = Figure(figsize=(self.width / 100, self.height / 100), dpi=100 * SCALE, facecolor=PAPER)
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.axis("off")

    def paint(self, patch: Artist) -> Artist:
        """Puts the patch on top of everything painted before."""
        patch.set_zorder(len(self.axes.get_children()))
        return self.axes.add_artist(patch)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = SMALL,
        colour: Colour = INK,
        align: str = "center",
        bold: bool = False,
        turned: bool = False,
        inside: Artist | None = None,
    ) -> None:
        """Lines of text whose middle is at y; `size` is the font size in CSS pixels."""
        half_a_capital = 0.36 * size
        lines = words.split("\n")
        for index, line in enumerate(lines):
            shift = (index - (len(lines) - 1) / 2) * size * 1.4 + (size / 2 if turned else half_a_capital)
            label = Text(
                x + (shift if turned else 0),
                y + (0 if turned else shift),
                line,
                fontproperties=FONTS[bold],
                fontsize=size * 0.72,
                color=colour,
                ha="right" if turned else align,
                va="center" if turned else "baseline",
                rotation=90 if turned else 0,
            )
            self.labels.append((self.paint(label), inside))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        size: int = SMALL,
        bold: bool = False,
        turned: bool = False,
        fill: Colour = SHADE,
        edge: str = "none",
        radius: float = 3,
        dashed: bool = False,
    ) -> Artist:
        """A rectangle with its words in the middle, in the ink that reads on its fill."""
        shape = FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0",
            facecolor=fill,
            edgecolor=edge,
            linewidth=0.8,
            linestyle=(0, (3, 3)) if dashed else "-",
        )
        self.paint(shape)
        if words:
            self.text(x + width / 2, y + height / 2, words, size, ink_on(fill), bold=bold, turned=turned, inside=shape)
        return shape

    def line(self, *points: Point, colour: str = LINE, width: float = 1, arrow: bool = False) -> None:
        """Straight strokes through the points, ending in an arrowhead if `arrow`; `width` in CSS pixels."""
        head = "-|>" if arrow else "-"
        stroke = {"color": colour, "linewidth": width * 0.72, "capstyle": "butt", "joinstyle": "miter"}
        self.paint(FancyArrowPatch(path=Curve(points), arrowstyle=head, mutation_scale=7, **stroke))

    def flow(self, start: Point, end: Point, colour: Colour) -> None:
        """A smooth line from a sender on the left to a receiver on the right."""
        middle = (start[0] + end[0]) / 2
        curve = Curve([start, (middle, start[1]), (middle, end[1]), end], [Curve.MOVETO, *[Curve.CURVE4] * 3])
        self.paint(PathPatch(curve, edgecolor=colour, linewidth=1.1, fill=False))

    def point(self, x: float, y: float) -> None:
        """A mark on a scale."""
        self.paint(Circle((x, y), 6, facecolor=INK, edgecolor="none"))

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """A dark frame around what fills the rectangle."""
        self.paint(Rectangle((x - 1, y - 1), width + 2, height + 2, fill=False, edgecolor=INK, linewidth=1.6))

    def rank_label(self, y: float, rank: int) -> None:
        """`rank r` on the rank's colour at the left margin, its middle at y."""
        self.box(MARGIN, y - 12, 54, 24, f"rank {rank}", fill=RANKS[rank])

    def png(self, description: str) -> bytes:
        """The file of the rendered canvas, with the description and the display width as metadata.

        Its palette takes colours in order of frequency, and of each that is near to another the more frequent one:
        very near among the first, which are the flat ones.
        """
        pixels = np.asarray(self.figure.canvas.buffer_rgba())[..., :3]
        codes, counts = np.unique(pixels.astype(np.int32) @ [1 << 16, 1 << 8, 1], return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")]
        colours = np.stack([frequent >> 16, frequent >> 8 & 255, frequent & 255], axis=1)
        chosen = colours[:1]
        for index, colour in enumerate(colours):
            near = FLAT_STEP if index < FLAT_COLOURS else PALETTE_STEP
            if len(chosen) < PALETTE_SIZE and np.abs(chosen - colour).max(axis=1).min() >= near:
                chosen = np.vstack([chosen, colour])
        palette = Image.new("P", (1, 1))
        palette.putpalette(chosen.ravel().tolist())
        image = Image.fromarray(pixels.copy()).quantize(palette=palette, dither=Image.Dither.NONE)
        metadata = PngInfo()
        metadata.add_itxt("Description", description)
        metadata.add_text("Display-Width", str(self.width))
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True, pnginfo=metadata)
        return file.getvalue()


# ---------------------------------------------------------------------------------------------------- hardware


@dataclass(frozen=True)
class Link:
    """A published bandwidth in GB/s (10⁹ bytes per second), what it counts, and the page that states it."""

    name: str
    bandwidth: float
    counts: str
    source: str

    def __str__(self) -> str:
        """The bandwidth with its unit, such as `8 TB/s` or `900 GB/s`."""
        return f"{self.bandwidth / 1000:g} TB/s" if self.bandwidth >= 1000 else f"{self.bandwidth:g} GB/s"


BLACKWELL_GUIDE = "https://docs.nvidia.com/cuda/blackwell-tuning-guide/"
HOPPER_GUIDE = "https://docs.nvidia.com/cuda/hopper-tuning-guide/"
DGX_B200_GUIDE = "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html"
PCIE_ARTICLE = "https://en.wikipedia.org/wiki/PCI_Express"
ETHERNET_ARTICLE = "https://en.wikipedia.org/wiki/Gigabit_Ethernet"

HBM = Link("HBM3e (B200)", 8000, "in a GPU, reads and writes", BLACKWELL_GUIDE)
NVLINK_5 = Link("NVLink 5 (B200)", 900, "GPU to GPU, each way", BLACKWELL_GUIDE)
NVLINK_4 = Link("NVLink 4 (H100)", 450, "GPU to GPU, each way", HOPPER_GUIDE)
PCIE_7 = Link("PCIe 7.0 ×16", 242, "device to device, each way", PCIE_ARTICLE)
PCIE_5 = Link("PCIe 5.0 ×16", 63, "device to device, each way", PCIE_ARTICLE)
INFINIBAND = Link("InfiniBand NDR port", 50, "node to node, each way", DGX_B200_GUIDE)
ETHERNET = Link("Gigabit Ethernet", 0.125, "node to node, each way", ETHERNET_ARTICLE)
NVSWITCH = Link("NVSwitch", 14400, "both directions, eight GPUs together", DGX_B200_GUIDE)
LADDER = (HBM, NVLINK_5, NVLINK_4, PCIE_7, PCIE_5, INFINIBAND, ETHERNET)

# 32 banks of 32 bits: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#shared-memory-and-memory-banks
SHARED_MEMORY_BYTES_PER_CLOCK = 32 * 32 // 8


def draw_gpu_node_overview(width: int) -> Canvas:
    """A data-centre node; every level is a row, named in the column on the right. Wider lines carry more."""
    canvas = Canvas(width, 588)
    gpu_width, gap, left, column = 94, 8, 28, 456
    right = left + 4 * gpu_width + 3 * gap
    canvas.box(MARGIN, 16, right - MARGIN + 12, 474, fill="none", edge=LINE, radius=6)
    canvas.text(left, 35, "a DGX B200 node, four of its eight GPUs drawn", colour=QUIET, align="left")
    canvas.box(left, 52, right - left, 32, "NVSwitch", size=NORMAL)
    for rank, colour in enumerate(RANKS):
        x = left + rank * (gpu_width + gap)
        middle = x + gpu_width / 2
        canvas.line((middle, 84), (middle, 146), colour=QUIET, width=6)
        canvas.box(x, 146, gpu_width, 252, fill=pale(colour), edge=colour, radius=5)
        canvas.text(middle, 163, f"GPU {rank}", size=NORMAL, bold=True)
        for offset in (8, 4, 0):  # a pile of SMs
            canvas.box(x + 7 + offset, 179 + offset, gpu_width - 22, 104, fill=PAPER, edge=QUIET)
        canvas.text(x + 7 + (gpu_width - 22) / 2, 192, "SM", bold=True)
        canvas.box(x + 11, 204, gpu_width - 30, 34, "registers")
        canvas.box(x + 11, 243, gpu_width - 30, 34, "L1/shared")
        canvas.line((middle, 291), (middle, 302), colour=QUIET, width=12)
        canvas.box(x + 7, 302, gpu_width - 14, 28, "L2 cache", fill=PAPER, edge=QUIET)
        canvas.line((middle, 330), (middle, 346), colour=QUIET, width=9)
        canvas.box(x + 7, 346, gpu_width - 14, 44, "HBM", size=NORMAL, fill=PAPER, edge=QUIET)
        canvas.line((middle, 398), (middle, 448), colour=QUIET, width=3)
        canvas.box(x + 17, 448, gpu_width - 34, 28, "NIC")
        canvas.line((middle, 476), (middle, 510), colour=QUIET, width=2.5)
    first, last = left + gpu_width / 2, right - gpu_width / 2
    canvas.line((first, 423), (last, 423), width=1)
    canvas.box((first + last) / 2 - 32, 410, 64, 26, "CPU", fill=PAPER, edge=LINE)
    canvas.box(left, 510, right - left, 32, "InfiniBand or Ethernet to other nodes", size=NORMAL)

    for y, name, facts in (
        (60, "NVSwitch", f"{NVSWITCH}, both directions,\neight GPUs together"),
        (115, "NVLink 5", f"{NVLINK_5} each way per GPU"),
        (208, "registers", "no bandwidth cited, nor for L2"),
        (245, "L1/shared memory", f"{SHARED_MEMORY_BYTES_PER_CLOCK} bytes per clock per SM,\n256 KB per SM on H100"),
        (297, "L2 cache", "50 MB on H100"),
        (350, "HBM3e", f"{HBM} per GPU,\nreads and writes together"),
        (409, "PCIe 5.0 ×16", f"{PCIE_5} each way per GPU,\npast the CPU"),
        (486, "InfiniBand NDR", f"{INFINIBAND} each way per GPU"),
    ):
        canvas.text(column, y, name, align="left", bold=True)
        canvas.text(column, y + 16 + 7.7 * facts.count("\n"), facts, colour=QUIET, align="left")
    canvas.text(
        MARGIN,
        565,
        "NVIDIA: Blackwell, Hopper tuning guides, DGX B200 guide, CUDA best practices. Wikipedia: PCI Express.",
        colour=QUIET,
        align="left",
    )
    return canvas


def draw_pcie_node(width: int) -> Canvas:
    """The machine at home."""
    canvas = Canvas(width, 300)
    canvas.box(MARGIN, 16, 444, 268, fill="none", edge=LINE, radius=6)
    canvas.text(MARGIN + 12, 35, "the machine at home", colour=QUIET, align="left")
    canvas.line((120, 82), (356, 82), colour=QUIET, width=3)
    canvas.line((448, 82), (532, 82), colour=QUIET, width=1)
    canvas.box(28, 60, 92, 44, "memory", size=NORMAL)
    canvas.box(356, 60, 92, 44, "NIC", size=NORMAL)
    canvas.box(532, 60, 92, 44, "network", size=NORMAL)
    canvas.text(624, 122, f"{ETHERNET.name}\n{ETHERNET} each way", colour=QUIET, align="right")
    for rank, (port, x) in enumerate(((208, 28), (268, 308))):
        middle = x + 70
        canvas.line((port, 106), (port, 136), (middle, 136), (middle, 172), colour=QUIET, width=3)
        canvas.box(x, 172, 140, 96, fill=pale(RANKS[rank]), edge=RANKS[rank], radius=5)
        canvas.text(middle, 191, f"GPU {rank}", size=NORMAL, bold=True)
        canvas.box(x + 14, 208, 112, 46, "its own memory", fill=PAPER, edge=QUIET)
    canvas.box(178, 54, 120, 56, "CPU", size=NORMAL, bold=True)
    canvas.text(238, 158, f"{PCIE_5.name}\n{PCIE_5} each way", colour=QUIET)
    canvas.text(238, 231, "GPU to GPU:\nthrough the CPU", colour=QUIET)
    return canvas


def draw_bandwidth_ladder(width: int) -> Canvas:
    """A point for each link on a log scale, fastest at the top, and what divides the levels of the lecture."""
    top, row, left, lowest, highest = 56, 42, 190, -1, 4  # the axis runs from 10^lowest to 10^highest GB/s
    bottom = top + len(LADDER) * row
    decade = (width - MARGIN - 46 - left) / (highest - lowest)
    canvas = Canvas(width, bottom + 112)

    def along(bandwidth: float) -> float:
        return left + (math.log10(bandwidth) - lowest) * decade

    def down(link: Link) -> float:
        return top + (LADDER.index(link) + 0.5) * row

    canvas.text(MARGIN, 28, "Bandwidth, log scale: each line stands for ten times the last", NORMAL, align="left")
    for power in range(lowest, highest + 1):
        x = along(10.0**power)
        canvas.line((x, top), (x, bottom), colour=SHADE)
        canvas.text(x, bottom + 14, str(Link("", 10.0**power, "", "")), colour=QUIET)
    for link in LADDER:
        x, y = along(link.bandwidth), down(link)
        canvas.text(left - 10, y - 8, link.name, align="right", bold=True)
        canvas.text(left - 10, y + 8, link.counts, align="right", colour=QUIET)
        if faster := {NVLINK_5: HBM, INFINIBAND: NVLINK_5}.get(link):
            start = along(faster.bandwidth)
            canvas.line((start, down(faster)), (start, y), (x + 8, y), arrow=True)
            canvas.text((x + start) / 2 + 4, y - 11, f"÷ {faster.bandwidth / link.bandwidth:.0f}", NORMAL)
        canvas.point(x, y)
        paper, words, align = (x + 9, x + 12, "left") if link is ETHERNET else (x - 76, x - 11, "right")
        canvas.box(paper, y - 9, 67, 18, fill=PAPER)
        canvas.text(words, y, str(link), align=align, bold=True)
    hours = round(HBM.bandwidth / ETHERNET.bandwidth / 3600)
    canvas.text(
        MARGIN,
        bottom + 68,
        f"What HBM moves in a second, gigabit Ethernet moves in {hours} hours.\n"
        f"L1/shared memory has no point: {SHARED_MEMORY_BYTES_PER_CLOCK} bytes per clock per SM, but no cited total.\n"
        "NVIDIA: Blackwell, Hopper tuning guides, DGX B200 guide. Wikipedia: PCI Express, Gigabit Ethernet.",
        colour=QUIET,
        align="left",
    )
    return canvas


# ---------------------------------------------------------------------------------------------------- collectives


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
            x = left + index * pitch
            is_sum = len(ranks) > 1
            fill = SHADE if is_sum else RANKS[ranks[0]]
            shape = canvas.box(x, top, size, size, fill=fill)
            canvas.text(x + size / 2, middle - 3 * is_sum, word, LARGE, ink_on(fill), inside=shape)
            for position, rank in enumerate(ranks if is_sum else ()):
                width = (size - 6) / len(ranks)
                canvas.box(x + 3 + position * width, top + size - 7, width, 4, fill=RANKS[rank], radius=0)
        if any(row_framed):
            canvas.frame(left + row_framed.index(True) * pitch, top, sum(row_framed) * pitch - 4, size)


# ---------------------------------------------------------------------------------------------------- training


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


# ---------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Picture:
    """How to draw a file, at how many CSS pixels the lecture shows it, and its alternative text."""

    draw: Callable[[int], Canvas]
    width: int
    description: str


def collective_picture(name: str, effect: str) -> Picture:
    """The picture of one collective operation."""
    return Picture(partial(draw_collective, name), 520, f"{name} among four ranks: {effect}.")


PICTURES = {
    "gpu-node-overview": Picture(
        draw_gpu_node_overview,
        640,
        "A node of GPUs with the bandwidths that are cited: SMs with registers and L1/shared memory, L2 cache and HBM "
        "inside each GPU, NVLink to an NVSwitch, and a network card per GPU to other nodes, past the CPU.",
    ),
    "pcie-node": Picture(
        draw_pcie_node,
        640,
        "The machine at home: PCIe joins two GPUs, each with its own memory, to the CPU, "
        "and a network card joins the machine to gigabit Ethernet.",
    ),
    "bandwidth-ladder": Picture(
        draw_bandwidth_ladder,
        640,
        f"Bandwidths as points on a log scale, from {HBM} for HBM3e over NVLink, PCIe and InfiniBand "
        f"down to {ETHERNET} for gigabit Ethernet.",
    ),
    "ranks": Picture(
        draw_ranks, 520, "Four ranks, each a process with its own memory and device, that share nothing but messages."
    ),
    "broadcast": collective_picture("broadcast", "rank 0's four numbers are copied to every rank"),
    "scatter": collective_picture("scatter", "rank 0's four numbers are dealt out, one to each rank"),
    "gather": collective_picture("gather", "one number from each rank is collected on rank 0"),
    "reduce": collective_picture("reduce", "one number from each rank is summed on rank 0"),
    "all-gather": collective_picture("all-gather", "one number from each rank is collected on every rank"),
    "reduce-scatter": collective_picture(
        "reduce-scatter", "four numbers from each rank are summed by position, and each rank gets one of the sums"
    ),
    "all-reduce": collective_picture(
        "all-reduce", "four numbers from each rank are summed by position, and every rank gets all four sums"
    ),
    "all-to-all": collective_picture(
        "all-to-all", "each rank sends one of its four numbers to each rank, which transposes the table of numbers"
    ),
    "data-parallelism": Picture(
        draw_data_parallelism,
        640,
        "Data parallelism: four ranks each have a quarter of the batch, 32×1024, and a copy of all four layers, "
        "and all-reduce averages every layer's gradient.",
    ),
    "tensor-parallelism": Picture(
        draw_tensor_parallelism,
        640,
        "Tensor parallelism: four ranks each have the whole batch and a 1024×256 slice of every layer, "
        "and all-gather joins the activations after each layer.",
    ),
    "pipeline-parallelism": Picture(
        draw_pipeline_parallelism,
        640,
        "Pipeline parallelism: rank 0 has the first two layers and rank 1 the last two, "
        "and rank 0 sends activations of 32×1024 once per micro-batch.",
    ),
    "pipeline-schedule": Picture(
        draw_pipeline_schedule,
        640,
        "Two ranks compute four micro-batches in five time slots, rank 1 a slot behind rank 0, "
        "so that each waits for one slot of the five, the bubble.",
    ),
}


def draw(name: str) -> Canvas:
    """The figure, rendered, whatever the reader's matplotlib settings."""
    with matplotlib.style.context("default"):
        canvas = PICTURES[name].draw(PICTURES[name].width)
        canvas.figure.canvas.draw()
    return canvas


def write_all(folder: Path) -> None:
    """Writes every figure as folder/NAME.png."""
    for name, picture in PICTURES.items():
        (folder / f"{name}.png").write_bytes(draw(name).png(picture.description))


if __name__ == "__main__":
    write_all(IMAGES)
