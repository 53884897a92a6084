"""What is in a machine, in a data centre and at home, and the way of a tensor out of it."""

from bandwidths import ETHERNET, HBM, INFINIBAND, NVLINK_5, NVSWITCH, PCIE_5, SHARED_MEMORY, rate
from canvas import LARGE, LINE, MARGIN, NORMAL, PAPER, QUIET, RANKS, Canvas, pale


def draw_gpu_node_overview(width: int) -> Canvas:
    """A data-centre node; every level is a row, named in the column on the right. Wider lines carry more."""
    canvas = Canvas(width, 600)
    gpu_width, gap, left, column = 94, 8, 28, 456
    right = left + 4 * gpu_width + 3 * gap
    canvas.box(MARGIN, 16, right - MARGIN + 12, 474, fill="none", edge=LINE, radius=6)
    canvas.text(left, 35, "a DGX B200 node, four of its eight GPUs drawn", colour=QUIET, align="left")
    canvas.box(left, 52, right - left, 32, "2 NVSwitch chips", size=NORMAL)
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

    shared = f"≈ {rate(round(SHARED_MEMORY.bandwidth, -3))}, all SMs of\nan H100; 256 KB per SM"
    for y, name, facts in (
        (60, "NVSwitch", f"{NVSWITCH}, eight GPUs"),
        (113, "NVLink 5", f"{NVLINK_5} per GPU"),
        (234, "L1/shared memory", shared),
        (296, "L2 cache", "50 MB on H100"),
        (346, "HBM3e", f"{HBM} per GPU, nominal;\n180 GB"),
        (412, "PCIe 5.0 ×16", f"{PCIE_5} per GPU,\npast the CPU"),
        (486, "InfiniBand NDR", f"{INFINIBAND} per GPU"),
    ):
        canvas.text(column, y, name, NORMAL, align="left", bold=True)
        canvas.text(column, y + 18 + 7.7 * facts.count("\n"), facts, colour=QUIET, align="left")
    canvas.text(
        MARGIN,
        572,
        "Bandwidths count both directions (reads and writes) together.\n"
        "NVIDIA: Blackwell, Hopper, CUDA, DGX B200 guides, HGX table. Wikipedia: PCI Express.",
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
    canvas.text(624, 122, f"{ETHERNET.name}\n{ETHERNET.each_way} each way", colour=QUIET, align="right")
    for rank, (port, x) in enumerate(((208, 28), (268, 308))):
        middle = x + 70
        canvas.line((port, 106), (port, 136), (middle, 136), (middle, 172), colour=QUIET, width=3)
        canvas.box(x, 172, 140, 96, fill=pale(RANKS[rank]), edge=RANKS[rank], radius=5)
        canvas.text(middle, 191, f"GPU {rank}", size=NORMAL, bold=True)
        canvas.box(x + 14, 208, 112, 46, "its own memory", fill=PAPER, edge=QUIET)
    canvas.box(178, 54, 120, 56, "CPU", size=NORMAL, bold=True)
    canvas.text(238, 158, f"{PCIE_5.name}\n{PCIE_5.each_way} each way", colour=QUIET)
    canvas.text(238, 231, "GPU to GPU:\nthrough the CPU", colour=QUIET)
    return canvas


def draw_rank_to_wire(width: int) -> Canvas:
    """Two lanes, the sender without and with RDMA, from the GPU's memory down to the wire."""
    canvas = Canvas(width, 560)
    lane, left, right = 292, MARGIN, width - MARGIN - 292
    for x, title, wire in (
        (left, "without RDMA", "wire: Ethernet"),
        (right, "with RDMA", "wire: InfiniBand, or RoCE"),
    ):
        data = x + 214
        canvas.text(x, 28, title, LARGE, align="left", bold=True)
        canvas.box(x, 48, lane, 60, fill=PAPER, edge=QUIET, radius=5)
        canvas.text(x + 14, 78, "GPU memory\nof rank 0", NORMAL, align="left")
        canvas.box(data - 70, 58, 140, 40, "tensor", NORMAL, fill=RANKS[0])
        canvas.line((data, 422), (data, 453), colour=QUIET, width=3, arrow=True)
        canvas.box(x, 386, lane, 36, "network card", NORMAL)
        canvas.box(x, 454, lane, 36, wire, NORMAL)
    draw_socket_path(canvas, left, lane)

    data = right + 214
    canvas.line((data, 98), (data, 385), colour=QUIET, width=3, arrow=True)
    canvas.text(data + 12, 237, "no copy\nin CPU\nmemory", NORMAL, align="left", bold=True)
    canvas.box(right, 192, 176, 90, fill=PAPER, edge=QUIET, radius=5)
    canvas.text(right + 88, 212, "CPU", NORMAL, bold=True)
    canvas.text(right + 88, 248, "NCCL's proxy thread\nposts the transfers", NORMAL)
    canvas.line((right + 88, 282), (right + 88, 385), colour=QUIET, arrow=True)
    canvas.text(right + 98, 334, "commands,\nno data", NORMAL, align="left")
    canvas.text(
        MARGIN,
        524,
        "thick: data; thin: commands; solid blue: the tensor; pale: a copy of it\n"
        "The receiver does the same in reverse, from the wire to its GPU.",
        NORMAL,
        align="left",
    )
    return canvas


def draw_socket_path(canvas: Canvas, x: float, lane: float) -> None:
    """The way through CPU memory: two copies, then packets."""
    data, copied = x + 214, {"fill": pale(RANKS[0]), "edge": RANKS[0]}
    canvas.box(x, 146, lane, 202, fill=PAPER, edge=QUIET, radius=5)
    canvas.line((data, 98), (data, 155), colour=QUIET, width=3, arrow=True)
    canvas.text(data - 12, 127, "copy 1, over PCIe", NORMAL, align="right", bold=True)
    canvas.text(x + 14, 176, "CPU memory\nof the process", NORMAL, align="left")
    canvas.box(data - 70, 156, 140, 40, "tensor", NORMAL, **copied)
    canvas.line((data, 196), (data, 235), colour=QUIET, width=3, arrow=True)
    canvas.text(data - 12, 216, "copy 2, by the CPU", NORMAL, align="right", bold=True)
    canvas.text(x + 14, 256, "socket buffer\nof the kernel", NORMAL, align="left")
    canvas.box(data - 70, 236, 140, 40, "tensor", NORMAL, **copied)
    canvas.line((data, 276), (data, 305), colour=QUIET, width=3, arrow=True)
    canvas.text(x + 14, 321, "TCP: packets", NORMAL, align="left")
    for packet in range(3):
        canvas.box(data - 70 + packet * 48, 306, 44, 30, **copied)
    canvas.line((data, 336), (data, 385), colour=QUIET, width=3, arrow=True)
