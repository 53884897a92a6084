"""The drawing grammar that all figures share: a canvas of text, boxes and lines, its colours, and its PNG file.

Lengths are CSS pixels at the width at which the lecture shows a figure, y pointing down; the files hold twice as many.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
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

Colour = str | tuple[float, float, float]
Point = tuple[float, float]

SCALE = 2  # file pixels per CSS pixel
SMALL, NORMAL, LARGE = 11, 13, 15  # font sizes
MARGIN = 16
RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # Okabe and Ito: safe for colour-blind readers
INK, QUIET, LINE, SHADE, PAPER = "#222222", "#5A5A5A", "#A6A6A6", "#E7E7E3", "#FDFCFA"
PALETTE_SIZE, PALETTE_STEP, FLAT_COLOURS, FLAT_STEP = 28, 24, 12, 3
FONTS = {  # matplotlib's own copy, not the system's
    bold: FontProperties(fname=Path(matplotlib.get_data_path(), "fonts", "ttf", file))
    for bold, file in ((False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf"))
}


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
        self.paint(FancyArrowPatch(path=Curve(points), arrowstyle=head, mutation_scale=max(7, 3.5 * width), **stroke))

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
