"""Published bandwidths, and the ladder that shows them together."""

import math
from dataclasses import dataclass

from canvas import MARGIN, NORMAL, PAPER, QUIET, SHADE, Canvas, Point


@dataclass(frozen=True)
class Link:
    """A bandwidth in GB/s (10⁹ bytes per second), what it serves, and the page that states it.

    It counts both directions together, which for memory are reads and writes.
    """

    name: str
    bandwidth: float
    serves: str
    source: str

    def __str__(self) -> str:
        """The bandwidth of both directions together with its unit, such as `8 TB/s` or `900 GB/s`."""
        return rate(self.bandwidth)

    @property
    def each_way(self) -> str:
        """The bandwidth of one direction with its unit."""
        return rate(self.bandwidth / 2)


def rate(bandwidth: float) -> str:
    """GB/s with the unit that suits, to three digits."""
    return f"{bandwidth / 1000:.3g} TB/s" if bandwidth >= 1000 else f"{bandwidth:.3g} GB/s"


BLACKWELL_GUIDE = "https://docs.nvidia.com/cuda/blackwell-tuning-guide/"
HOPPER_GUIDE = "https://docs.nvidia.com/cuda/hopper-tuning-guide/"
DGX_B200_GUIDE = "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html"
PCIE_ARTICLE = "https://en.wikipedia.org/wiki/PCI_Express"
ETHERNET_ARTICLE = "https://en.wikipedia.org/wiki/Gigabit_Ethernet"
BANKS_GUIDE = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#shared-memory-and-memory-banks"

SHARED_MEMORY_BYTES_PER_CLOCK = 32 * 4  # of one SM: 32 banks of 4 bytes
H100_SMS, H100_GHZ = 132, 1.8  # SXM, boost: NVIDIA's H100 data sheet

SHARED_MEMORY = Link(
    "L1/shared memory", SHARED_MEMORY_BYTES_PER_CLOCK * H100_SMS * H100_GHZ, "all SMs of an H100", BANKS_GUIDE
)
HBM = Link("HBM3e", 8000, "one B200", BLACKWELL_GUIDE)  # nominal: an HGX B200 has 7.7 TB/s
NVLINK_5 = Link("NVLink 5", 1800, "one B200", BLACKWELL_GUIDE)
NVLINK_4 = Link("NVLink 4", 900, "one H100", HOPPER_GUIDE)
PCIE_7 = Link("PCIe 7.0 ×16", 2 * 242, "one device", PCIE_ARTICLE)
PCIE_5 = Link("PCIe 5.0 ×16", 2 * 63, "one device", PCIE_ARTICLE)
INFINIBAND = Link("InfiniBand NDR", 2 * 50, "one port, one per B200", DGX_B200_GUIDE)
ETHERNET = Link("Gigabit Ethernet", 2 * 0.125, "one port", ETHERNET_ARTICLE)
NVSWITCH = Link("NVSwitch", 14400, "eight B200 together", DGX_B200_GUIDE)
LADDER = (SHARED_MEMORY, HBM, NVLINK_5, NVLINK_4, PCIE_7, PCIE_5, INFINIBAND, ETHERNET)


def draw_bandwidth_ladder(width: int) -> Canvas:
    """A point for each link on a log scale, fastest at the top, and what divides the levels of the lecture."""
    top, row, left, lowest, highest = 78, 44, 168, -1, 5  # the axis runs from 10^lowest to 10^highest GB/s
    bottom = top + len(LADDER) * row
    decade = (width - MARGIN - 30 - left) / (highest - lowest)
    canvas = Canvas(width, bottom + 112)

    def place(link: Link) -> Point:
        return left + (math.log10(link.bandwidth) - lowest) * decade, top + (LADDER.index(link) + 0.5) * row

    canvas.text(
        MARGIN,
        36,
        "Bandwidth, both directions (reads and writes) together\nLog scale: each line stands for ten times the last",
        NORMAL,
        align="left",
    )
    for power in range(lowest, highest + 1):
        x = left + (power - lowest) * decade
        canvas.line((x, top), (x, bottom), colour=SHADE)
        canvas.text(x, bottom + 14, rate(10.0**power), colour=QUIET)
    for faster, slower, side in ((HBM, NVLINK_5, -1), (NVLINK_5, INFINIBAND, -1), (HBM, INFINIBAND, 1)):
        (start, height), (x, y) = place(faster), place(slower)
        canvas.line((start, height), (start, y + 4 * side), (x + 7, y + 4 * side), width=1.2, arrow=True)
        ratio = faster.bandwidth / slower.bandwidth
        canvas.text(min(x + 28, (x + start) / 2 + 2), y + 15 * side, f"÷ {ratio:.2g}", NORMAL)
    for link in LADDER:
        x, y = place(link)
        canvas.text(left - 12, y - 8, link.name, NORMAL, align="right", bold=True)
        canvas.text(left - 12, y + 9, link.serves, align="right", colour=QUIET)
        canvas.point(x, y)
        words = f"≈ {rate(round(link.bandwidth, -3))}" if link is SHARED_MEMORY else str(link)
        paper, start, align = (x + 9, x + 12, "left") if link is ETHERNET else (x - 84, x - 11, "right")
        canvas.box(paper, y - 10, 75, 20, fill=PAPER)
        canvas.text(start, y, words, NORMAL, align=align, bold=True)
    canvas.text(
        MARGIN,
        bottom + 70,
        f"L1/shared memory: {SHARED_MEMORY_BYTES_PER_CLOCK} bytes a clock per SM × {H100_SMS} SMs × {H100_GHZ} GHz, "
        "an H100's, while the ratios are a B200's.\nHBM3e: nominal; an HGX B200 has 7.7 TB/s.\n"
        "NVIDIA: Blackwell, Hopper, CUDA, DGX B200 guides. Wikipedia: PCI Express, Gigabit Ethernet.",
        colour=QUIET,
        align="left",
    )
    return canvas
