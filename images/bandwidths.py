"""Published bandwidths, and the ladder that shows them together."""

import math
from dataclasses import dataclass

from canvas import MARGIN, NORMAL, PAPER, QUIET, SHADE, Canvas


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
