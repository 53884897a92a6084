"""Each figure that the narration states is computed here from its definition, or stands with a link to its source."""

import re
from fractions import Fraction
from itertools import chain

import pytest
import torch
from narration import SOURCE, TEXTS, TOLD, Told, demo_options, numbers, sentence, table
from pipelines import Order, gpipe, idle, most_stored, one_forward_one_backward
from ring_reference import ring_all_reduce_sends
from torch.utils.flop_counter import FlopCounterMode

import gpu_util
import lecture_07
import spawn_util

FLOAT32 = torch.float32.itemsize

# What the sources say, in bytes a second unless it is bits.
HBM, HBM_HGX, NVLINK_BOTH, NVLINK_H100_BOTH, INFINIBAND_BITS, GIGABIT = 8e12, 7.7e12, 1.8e12, 900e9, 400e9, 1e9
SHARED_MEMORY_BANKS, BYTES_PER_BANK, SMS, CLOCK = 32, 4, 132, 1.8e9
DENSE_BF16, HBM_CAPACITY = 2.25e15, 180e9
GPUS_PER_NODE, TRAYS, GPUS_PER_TRAY = 8, 18, 4
# What follows from them.
L1 = SHARED_MEMORY_BANKS * BYTES_PER_BANK * SMS * CLOCK
NVLINK, NVLINK_H100, INFINIBAND = NVLINK_BOTH / 2, NVLINK_H100_BOTH / 2, INFINIBAND_BITS / 8

SOURCED = {
    "https://docs.nvidia.com/cuda/hopper-tuning-guide/": [
        "256 KB",
        f"{NVLINK_H100 / 1e12:g} TB/s",
        f"{NVLINK_H100_BOTH / 1e12:g} TB/s",
    ],
    "https://docs.nvidia.com/cuda/blackwell-tuning-guide/": [f"{HBM / 1e12:g}", f"{NVLINK_BOTH / 1e12:g}"],
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/": [f"{SHARED_MEMORY_BANKS * BYTES_PER_BANK} bytes"],
    "https://www.nvidia.com/en-us/data-center/h100/": [f"{SMS} SMs", f"{CLOCK / 1e9:g} GHz"],
    "https://www.nvidia.com/en-us/data-center/hgx/": [
        f"{HBM / 1e12:g} TB/s",
        f"{HBM_HGX / 1e12:g} TB/s",
        f"{DENSE_BF16 / 1e15:g} PFLOP/s",
        f"{HBM_CAPACITY / 1e9:g} GB",
    ],
    "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html": [
        f"{INFINIBAND_BITS / 1e9:g} Gb/s",
        f"{2 * INFINIBAND / 1e12:g}",
        f"{GPUS_PER_NODE} GPUs",
        "2 NVSwitch",
        "14.4 TB/s",
    ],
    "https://www.nvidia.com/en-us/data-center/gb200-nvl72/": [
        f"{TRAYS} compute",
        f"{GPUS_PER_TRAY} GPUs",
        "9 switch",
        f"{TRAYS * GPUS_PER_TRAY} GPUs",
        "130 TB/s",
    ],
    "https://engineering.fb.com/2024/03/12/data-center-engineering/building-metas-genai-infrastructure/": ["24 000"],
    "https://en.wikipedia.org/wiki/PCI_Express": ["63 GB/s", "242 GB/s"],
    "https://en.wikipedia.org/wiki/Gigabit_Ethernet": [f"{GIGABIT / 8 / 1e9:g} GB/s"],
    "https://arxiv.org/abs/2507.04786": ["1 µs"],
    "https://arxiv.org/abs/1910.02054": ["1 the", "2 the", "3 the"],
    "https://github.com/pytorch/pytorch/pull/149781": ["2.8 or", "2.13"],
    "https://github.com/pytorch/pytorch/pull/118911": ["2 of"],
}
"""For each source the figures that it gives, or that are another unit or a half or the double of one that it gives."""

DERIVED = {
    "main": [
        *("30", "30 TB/s", "4.4 times", "18 times", "80 times"),
        *("16 bytes", "70 billion", "1.12 TB"),
        *("12", "8"),
        *("2500 FLOP", "0.9 TB/s", "0.05 TB/s", "45 000 FLOP", "2 bytes", "4 FLOP"),
        *("2500 tokens", "45 000 tokens", "7500", "135 000", "8192", "1 layer", "6 layers"),
        *("25 MB", "4 gradients", "1.6 MB", "4 layers", "3 ranks", "0.52 MB", "4 micro-batches", "2048 rows"),
    ],
    "collective_operations": ["4"],
    "torch_distributed": ["0", "1", "2", "3"],
    "collective_operations_main": ["6", "10", "14", "18 like"],
    "benchmarking": ["16 bytes", "4.2 MB", "131 KB", "0.15 µs", "2.6 µs", "450", "900", "4 times"],
    "tensor_parallelism": ["256 columns", "256 outputs"],
    "pipeline_parallelism": ["2 ranks", "1/2 with", "1/5 with", "4", "1/33 with", "32", "4 lines", "32 rows"],
}
"""By section: figures that follow from others or from the demos' sizes. The tests below compute each of them."""

MEASURED = ["4 GPUs", "393 to", "457", "483 to", "526", "526 GB/s", "1.4 to", "1.6 ms", "2.4 to", "2.6 ms"]
MEASURED += ["2 idle", "0.9", "0.3", "3 in"]
"""No page states these: the lecture's own two benchmarks gave them. Tests below check that they fit together."""
MEASURED_ON_CPU = {2**18: (0.26, 0.24), 2**20: (0.51, 0.34), 2**22: (0.87, 0.31), 2**24: (0.97, 0.31)}
"""By float32 per rank: GB/s of all-reduce and reduce-scatter with gloo on 2 cores, medians of 5 runs of torch 2.13."""

LABELS = [  # digits that are part of a name or count off, and state nothing
    r"`[^`]*`",  # code
    r"\$[^$]*\$(?: = (?=[\d]))?",  # formulas: tested below
    r"\[[^\]]*\]\([^)]*\)",  # links
    r"\b[A-Z]+\d+s?\b",  # B200, H100s, NVL72
    r"\b1F1B\b",
    r"PCIe \d\.0 ×16",
    r"Llama 3|float32|ZeRO-3|FSDP / ZeRO-3",
    r"10⁹ bytes",  # what GB means here: the tests of the bandwidths count with it
    r"[Rr]anks? \d(?!/)(?: and \d)?|: 0, 1, 2, 3\.",
    r"# Part \d",
    r"\d+ × \d+(?= bytes|\.| to)",  # shapes and products: tested with what they give
]
FIGURE = re.compile(r"(?<![\w.])(\d+(?:\s\d{3})*(?:[./]\d+)?)(?:\s([A-Za-zµ/-]+))?")


def figures(text: str) -> list[str]:
    """The figures of a text, each with the word after it."""
    for label in LABELS:
        text = re.sub(label, "", text)
    return [" ".join(filter(None, (re.sub(r"\s", " ", number), unit))) for number, unit in FIGURE.findall(text)]


def parts(told: Told) -> list[str]:
    """What has sources of its own: each row of a table, or the whole text."""
    return told.content.split("\n") if told.content.startswith("|") else [told.content]


def sources_of(told: Told, part: str) -> list[str]:
    """The links in a part of a text, or, where it has none, those right below the text."""
    if told.urls:
        return [url for url in told.urls if f"]({url})" in part]
    below = TOLD[TOLD.index(told) + 1 :]
    return [url for link in below[:1] if link.kind == "link" for url in link.urls]


WITH_FIGURES = [(told, part) for told in TEXTS for part in parts(told) if figures(part)]


@pytest.mark.parametrize(("told", "part"), WITH_FIGURES, ids=[f"line {told.line}" for told, _ in WITH_FIGURES])
def test_every_figure_is_computed_or_stands_with_its_source(told: Told, part: str) -> None:
    sourced = [figure for url in sources_of(told, part) for figure in SOURCED.get(url, [])]
    measured = MEASURED if told.function == "benchmarking" else []
    assert set(figures(part)) <= {*sourced, *measured, *DERIVED.get(told.function, [])}


def test_every_known_figure_is_in_the_narration() -> None:
    """A figure that is no longer told has no place in the lists above either."""
    told = {figure for _, part in WITH_FIGURES for figure in figures(part)}
    assert told == {*MEASURED, *chain(*SOURCED.values(), *DERIVED.values())}


def test_figures_are_found_in_any_text() -> None:
    text = "A B200 has 8 GPUs, 1.8 TB/s, 24 000 H100s, half (1/5), `x[3]`, $n-1$, [8 TB/s](https://x.org) and is 3"
    assert figures(text) == ["8 GPUs", "1.8 TB/s", "24 000", "1/5", "3"]


# The hierarchy and the links


def test_the_levels_of_the_hierarchy_are_as_fast_as_their_sources_say() -> None:
    rows = table("level")
    assert [re.match(r"(?:about )?(\d+(?:\.\d+)?), ", row[2])[1] for row in rows] == [
        f"{bandwidth / 1e12:.2g}" for bandwidth in (L1, HBM, NVLINK_BOTH, 2 * INFINIBAND)
    ]
    assert INFINIBAND_BITS / 1e9 == float(re.search(r"a port of (\d+) Gb/s", rows[3][2])[1])


def test_each_level_of_the_hierarchy_names_its_source() -> None:
    for row in table("level"):
        assert re.search(r"\[[^\]]+\]\(https://\S+\)", row[1] + row[2]), f"no source for {row[0]}"


def test_the_bandwidth_of_l1_follows_from_banks_sms_and_clock() -> None:
    sms, num_bytes, clock, total = numbers(
        r"An H100's (\d+) SMs", r"read (\d+) bytes in a clock each", r"(\d+\.\d) GHz", r": (\d+) TB/s"
    )
    banks, width = numbers(r"\[(\d+) banks of (\d+) bytes\]")
    assert (sms, banks, width, clock) == (SMS, SHARED_MEMORY_BANKS, BYTES_PER_BANK, CLOCK / 1e9)
    assert num_bytes == banks * width
    assert total == float(f"{sms * num_bytes * clock * 1e9 / 1e12:.1g}")


def test_the_ratios_of_the_hierarchy_are_those_of_its_figures() -> None:
    stated = numbers(
        r"HBM is (\S+) times as fast as NVLink",
        r"NVLink (\S+) times as fast as an InfiniBand port",
        r"(\S+) times from HBM to InfiniBand",
    )
    assert stated == [round(HBM / NVLINK_BOTH, 1), NVLINK_BOTH / (2 * INFINIBAND), HBM / (2 * INFINIBAND)]


def test_one_bandwidth_in_two_units_or_directions_is_the_same() -> None:
    each_way, both = numbers(r"An H100's NVLink has half", r"(\d\.\d+) TB/s each way", r"(\d\.\d+) TB/s in both")
    assert both == 2 * each_way == NVLINK_BOTH / 2 / 1e12
    assert numbers(r"Gigabit Ethernet carries (\S+) GB/s each way") == [GIGABIT / 8 / 1e9]


def test_bandwidths_of_a_node_and_of_a_rack_are_those_of_their_gpus() -> None:
    gpus, together = numbers(r"A DGX B200 has (\d+) GPUs", r"(\d+\.\d+) TB/s together in both directions")
    assert together == pytest.approx(gpus * NVLINK_BOTH / 1e12)
    trays, each, gpus, together = numbers(
        r"(\d+) compute trays of (\d+) GPUs", r"(\d+) GPUs in one NVLink domain", r"(\d+) TB/s together in both"
    )
    assert gpus == trays * each
    assert together == round(gpus * NVLINK_BOTH / 1e12, -1), "to two digits"


def test_pcie_is_slower_than_nvlink() -> None:
    (pcie,) = numbers(r"(\d+) GB/s each way: still less than NVLink does")
    assert pcie * 1e9 < NVLINK_H100


# Benchmarks


@pytest.mark.parametrize(("column", "gibibytes"), [("all-reduce", (366, 426)), ("reduce-scatter", (450, 490))])
def test_measured_bandwidths_follow_from_the_measured_times(column: str, gibibytes: tuple[int, int]) -> None:
    on_gpus = table("GB/s, each way")[0]
    least, most = map(int, on_gpus[1 if column == "all-reduce" else 2].split(" to "))
    times = numbers(r"The GPUs took (\S+) to (\S+) ms and (\S+) to (\S+) ms")
    shortest, longest = times[:2] if column == "all-reduce" else times[2:]
    assert (least, most) == tuple(round(each * 2**30 / 1e9) for each in gibibytes)
    world_size, size = demo_options("all_reduce")["world_size"], spawn_util.GPU_NUM_ELEMENTS * FLOAT32
    sent = size * (2 * (world_size - 1) / world_size if column == "all-reduce" else world_size - 1)
    rounding = 0.05  # of a time in ms
    assert sent / (longest + rounding) / 1e6 <= least <= sent / (longest - rounding) / 1e6
    assert sent / (shortest + rounding) / 1e6 <= most <= sent / (shortest - rounding) / 1e6


def test_the_measured_gpus_were_faster_than_an_h100_can_be() -> None:
    (most,) = numbers(r"(\d+) GB/s is more than an H100's NVLink carries each way")
    assert most == float(table("GB/s, each way")[0][2].split(" to ")[1])
    assert NVLINK_H100 < most * 1e9 < NVLINK


def test_the_peak_of_the_link_is_that_of_one_direction() -> None:
    peaks = re.fullmatch(r"(\d+) \(H100\), (\d+) \(B200\)", table("GB/s, each way")[0][3]).groups()
    assert list(map(float, peaks)) == [NVLINK_H100 / 1e9, NVLINK / 1e9]


def test_bandwidths_told_for_a_cpu_are_those_measured_at_the_size_that_the_lecture_takes() -> None:
    told = [float(cell) for cell in table("GB/s, each way")[1][1:3]]
    assert told == [round(each, 1) for each in MEASURED_ON_CPU[spawn_util.CPU_NUM_ELEMENTS]]
    explained, factor = numbers(r"explains a factor of (\d) of the (\d) in the table")
    assert factor == told[0] / told[1]
    world_size = demo_options("reduce_scatter")["world_size"]
    assert explained == ring_all_reduce_sends(world_size)[0] / (world_size - 1), "pieces sent, and pieces needed"


def test_benchmark_sizes_are_as_commented() -> None:
    powers = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
    comment = re.search(r"# (\d+) · (\d+)(\S) on GPUs, (\d)(\S+) on CPUs", SOURCE).groups()
    factor, base, power, cpu_base, cpu_power = ("".join(powers.get(digit, digit) for digit in each) for each in comment)
    assert int(factor) * int(base) ** int(power) == spawn_util.GPU_NUM_ELEMENTS
    assert int(cpu_base) ** int(cpu_power) == spawn_util.CPU_NUM_ELEMENTS


def test_messages_are_as_large_and_as_fast_as_stated() -> None:
    batch, dim = lecture_07.generate_sample_data().shape
    tensor, pipeline = demo_options("tensor_parallelism_main"), demo_options("pipeline_parallelism_main")
    assert numbers(r"The demo above, (\d+) bytes") == [demo_options("collective_operations_main")["world_size"] * 4]
    gradient, activations, on_nvlink, on_infiniband = numbers(
        r"gradients of (\S+) MB", r"activations of (\S+) KB", r"in (\S+) µs", r"in (\S+) µs"
    )
    assert gradient == round(dim * dim * FLOAT32 / 1e6, 1)
    sent = batch * dim // tensor["world_size"] * FLOAT32
    assert sent == batch // pipeline["num_micro_batches"] * dim * FLOAT32
    assert activations == round(sent / 1e3)
    assert (on_nvlink, on_infiniband) == (round(sent / NVLINK * 1e6, 2), round(sent / INFINIBAND * 1e6, 1))


# What a rank sends


def formula(text: str, **values: int) -> Fraction:
    """The value of a formula."""
    operators = text.replace("\\cdot", "*").replace("^2", "**2")
    with_products = re.sub(r"(?<=[\w)])\s?(?=[(a-zA-Z])", "*", operators)
    return eval(with_products, {name: Fraction(value) for name, value in values.items()})


def test_formulas_are_read_as_one_reads_them() -> None:
    assert formula("2(n - 1)/n \\cdot S", n=4, S=8) == 12
    assert formula("2 d^2 k", d=3, k=5) == 90
    assert formula("d/(n - 1)", d=6, n=4) == 2


@pytest.mark.parametrize("world_size", range(2, 9))
def test_a_rank_sends_around_a_ring_what_the_formula_says(world_size: int) -> None:
    sends = ring_all_reduce_sends(world_size)  # of each rank, in pieces
    (stated,) = sentence(r"So each rank sends \$([^$]+)\$ bytes").groups()
    assert {Fraction(pieces, world_size) for pieces in sends} == {formula(stated, n=world_size, S=1)}


def test_rank_0_receives_in_the_naive_way_what_is_stated() -> None:
    (stated,) = sentence(r"The naive way: all send to rank 0.*?Rank 0 receives \$([^$]+)\$ and sends as much").groups()
    assert formula(stated, n=4, S=1) == sum(1 for rank in range(4) if rank != 0)


def test_a_rank_sends_in_the_demos_what_is_stated() -> None:
    batch, dim = lecture_07.generate_sample_data().shape

    def megabytes(num_elements: Fraction | int) -> float:
        return float(f"{float(num_elements * FLOAT32) / 1e6:.2g}")

    options = demo_options("data_parallelism_main")
    all_reduce = Fraction(ring_all_reduce_sends(options["world_size"])[0], options["world_size"])
    layers = options["num_layers"]
    stated = numbers(r"data parallelism a rank sends (\S+) MB", r"(\d+) gradients of (\d+) × (\d+)")
    assert stated == [megabytes(all_reduce * layers * dim * dim), layers, dim, dim]

    options = demo_options("tensor_parallelism_main")
    layers, others, local_dim = options["num_layers"], options["world_size"] - 1, dim // options["world_size"]
    stated = numbers(r"it sends (\S+) MB", r"in each of (\d+) layers activations of (\d+) × (\d+) to (\d+) ranks")
    assert stated == [megabytes(layers * others * batch * local_dim), layers, batch, local_dim, others]
    assert numbers(r"beyond (\d+) rows") == [all_reduce * dim * dim / (others * local_dim)]
    assert numbers(r"(\d+) columns from each rank") == numbers(r"a layer of (\d+) outputs") == [local_dim]

    options = demo_options("pipeline_parallelism_main")
    micro_batches, rows = options["num_micro_batches"], batch // options["num_micro_batches"]
    stated = numbers(r"pipeline parallelism (\S+) MB", rf"(\d+) micro-batches with activations of {rows} × {dim}")
    assert stated == [megabytes(micro_batches * rows * dim), micro_batches]
    assert numbers(r"Rank 0 prints (\d+) lines", r"activations, (\d+) rows") == [micro_batches, rows]


# Which cut wants which link


def flops(function: str, batch: int, num_inputs: int, num_outputs: int) -> int:
    """FLOP that torch counts in a matrix product: of the forward pass, or of the backward pass to both factors."""
    x = torch.ones(batch, num_inputs, requires_grad=True)
    weight = torch.ones(num_inputs, num_outputs, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = x @ weight
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    return {"forward": forward, "backward": backward}[function].get_total_flops()


def test_a_link_carries_away_a_byte_in_the_stated_flop() -> None:
    petaflops, nvlink, per_nvlink_byte, infiniband, per_infiniband_byte = numbers(
        r"does (\S+) PFLOP/s",
        r"NVLink carries (\S+) TB/s",
        r"way: (\d+) FLOP for each byte sent",
        r"port carries (\S+) TB/s",
        r": ([\d ]+) FLOP for each byte\.",
    )
    assert (petaflops, nvlink, infiniband) == (DENSE_BF16 / 1e15, NVLINK / 1e12, INFINIBAND / 1e12)
    assert (per_nvlink_byte, per_infiniband_byte) == (DENSE_BF16 / NVLINK, DENSE_BF16 / INFINIBAND)


NVLINK_RATIO, INFINIBAND_RATIO = DENSE_BF16 / NVLINK, DENSE_BF16 / INFINIBAND
BYTES = torch.bfloat16.itemsize


def test_with_data_parallelism_a_byte_comes_with_as_many_flop_as_there_are_tokens() -> None:
    flop, factor, num_bytes = numbers(r"the backward pass does (\d+) FLOP a token", r"sends about (\d+) × (\d+) bytes")
    tokens, dim = 7, 16
    assert flop == flops("backward", tokens, dim, dim) / (tokens * dim * dim)
    assert num_bytes == BYTES
    assert factor == pytest.approx(ring_all_reduce_sends(64)[0] / 64, rel=0.02), "about, on many ranks"
    assert flop / (factor * num_bytes) == 1
    data, *_ = table("cut")
    assert data[1:] == ["tokens per GPU", f"{NVLINK_RATIO:.0f} tokens", f"{INFINIBAND_RATIO / 1e3:.0f} 000 tokens"]


def test_tensor_parallelism_has_the_stated_flop_a_byte_whatever_the_batch() -> None:
    per_token, sent = sentence(
        r"\*\*Tensor\*\*", r"a layer does \$([^$]+)\$ FLOP", r"sends \$([^$]+)\$ elements to each of"
    ).groups()
    (per_byte,) = sentence(r"\*\*Tensor\*\*.*?: \$([^$]+)\$ FLOP a byte").groups()
    dim, tokens = 64, 5
    for n in (2, 4, 8):
        counted = flops("forward", tokens, dim, dim // n)
        assert formula(per_token, d=dim, n=n) * tokens == counted
        num_bytes = formula(sent, d=dim, n=n) * (n - 1) * tokens * BYTES
        assert formula(per_byte, d=dim, n=n) == counted / num_bytes
    (row,) = [row for row in table("cut") if row[0].startswith("tensor")]
    assert row[0] == "tensor, $n = 4$" and row[1] == f"${per_byte}$"
    for cell, ratio in zip(row[2:], (NVLINK_RATIO, INFINIBAND_RATIO), strict=True):
        width = int(re.fullmatch(r"\$d\$ = ([\d ]+)", cell)[1].replace(" ", ""))
        assert formula(per_byte, d=width, n=4) == ratio


def test_pipeline_parallelism_has_the_stated_flop_a_byte() -> None:
    per_token, sent, per_byte = sentence(
        r"\*\*Pipeline\*\*", r"a stage does \$([^$]+)\$ FLOP", r"sends \$([^$]+)\$ elements on: \$([^$]+)\$ FLOP a byte"
    ).groups()
    dim, tokens, layers = 16, 5, 3
    counted = layers * flops("forward", tokens, dim, dim)
    assert formula(per_token, d=dim, k=layers) * tokens == counted
    assert formula(per_byte, d=dim, k=layers) == Fraction(counted, int(formula(sent, d=dim)) * tokens * BYTES)
    (row,) = [row for row in table("cut") if row[0].startswith("pipeline")]
    dim = int(re.fullmatch(r"pipeline, \$d\$ = (\d+)", row[0])[1])
    for cell, ratio in zip(row[2:], (NVLINK_RATIO, INFINIBAND_RATIO), strict=True):
        layers = int(re.fullmatch(r"(\d+) layers?", cell)[1])
        assert formula(per_byte, d=dim, k=layers) >= ratio > formula(per_byte, d=dim, k=layers - 1)


def test_an_mlp_has_the_stated_part_of_a_transformer_blocks_weights() -> None:
    dim = 32
    block = torch.nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=4 * dim)
    weights = {name: weight.numel() for name, weight in block.named_parameters() if weight.dim() == 2}
    in_mlp = sum(size for name, size in weights.items() if name.startswith("linear"))
    stated = numbers(r"of the (\d+) \$d\^2\$ weights", r"(\d+) \$d\^2\$ lie in such layers")
    assert stated == [sum(weights.values()) / dim**2, in_mlp / dim**2]


# The training demos


def test_adamw_keeps_as_many_bytes_for_a_parameter_as_stated_and_they_do_not_fit() -> None:
    parameter = torch.nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.AdamW([parameter])
    parameter.square().sum().backward()
    optimizer.step()
    state = [value for value in optimizer.state[parameter].values() if value.shape == parameter.shape]
    kept = sum(tensor.numel() * tensor.element_size() for tensor in [parameter, parameter.grad, *state])
    per_parameter, billions, terabytes, capacity = numbers(
        r"with AdamW", r"take (\d+) bytes", r"(\d+) billion parameters that is (\S+) TB", r"a B200 has (\d+) GB"
    )
    assert per_parameter == kept / parameter.numel()
    assert terabytes * 1e12 == per_parameter * billions * 1e9 > capacity * 1e9 == HBM_CAPACITY


def test_activations_of_equal_shards_are_larger_than_those_of_whole_layers() -> None:
    assert sentence(r"scaled for a layer of \d+ outputs, activations are larger than in the other demos")
    options = demo_options("tensor_parallelism_main")
    whole = sharded = lecture_07.generate_sample_data()
    _, dim = whole.shape
    weight = lecture_07.get_init_params(dim, dim, rank=0)
    shard = lecture_07.get_init_params(dim, dim // options["world_size"], rank=0)
    for _ in range(options["num_layers"]):
        whole = torch.nn.functional.gelu(whole @ weight)
        columns = [shard.roll(rank, dims=1) for rank in range(options["world_size"])]
        sharded = torch.nn.functional.gelu(sharded @ torch.cat(columns, dim=1))
    assert sharded.std() > 2 * whole.std()


def test_the_world_size_told_is_that_of_the_demos() -> None:
    (told,) = numbers(r"\*\*World size\*\*.* (\d+)\.")
    for program in ("collective_operations_main", "all_reduce", "reduce_scatter", "data_parallelism_main"):
        assert demo_options(program)["world_size"] == told
    assert demo_options("tensor_parallelism_main")["world_size"] == told
    assert numbers(r"its input is (\d+) times as large") == [told]
    assert table("GB/s, each way")[0][0].startswith(f"{told:g} GPUs of one node")


def test_rank_2_holds_after_the_first_demo_what_is_stated() -> None:
    n = demo_options("collective_operations_main")["world_size"]
    contributed = numbers(r"rank \$r\$ contributes the numbers (\d), (\d), (\d), (\d), each plus \$r\$")
    assert contributed == list(range(n))
    sums = [sum(number + rank for rank in range(n)) for number in contributed]
    *stated, piece = numbers(r"Rank 2 held (\d+), (\d+), (\d+), (\d+) like everyone, then its piece, (\d+)")
    assert (stated, piece) == (sums, sums[2])


def test_the_oldest_torch_told_is_the_one_below_which_the_lecture_refuses_to_run() -> None:
    assert sentence(r"runs with torch (\S+) or newer")[1] == ".".join(map(str, gpu_util.OLDEST_TORCH))


# Pipelines


def test_the_bubble_is_what_a_schedule_leaves_idle() -> None:
    text, ranks, one, few, few_count, many, many_count = sentence(
        r"the \*\*bubble\*\*",
        r"\$(\(p[^$]+)\$ of the time: for (\d+) ranks (\S+) with one micro-batch, (\S+) with (\d+), (\S+) with (\d+)",
    ).groups()
    for p in range(1, 6):
        for m in range(1, 9):
            assert formula(text, p=p, m=m) == idle(gpipe, p, m, backward=0)
    for stated, micro_batches in ((one, 1), (few, int(few_count)), (many, int(many_count))):
        assert Fraction(stated) == idle(gpipe, int(ranks), micro_batches, backward=0)
    options = demo_options("pipeline_parallelism_main")
    assert (options["world_size"], options["num_micro_batches"]) == (int(ranks), int(few_count))


@pytest.mark.parametrize("p", range(1, 6))
@pytest.mark.parametrize("m", [1, 2, 4, 8, 32])
def test_1f1b_changes_what_is_stored_and_not_the_bubble(p: int, m: int) -> None:
    stored_by_gpipe, stored_by_1f1b = sentence(
        r"\*\*GPipe\*\*",
        r"stores the activations of \$(\w)\$ on each rank",
        r"at most \$(\w)\$ micro-batches are stored",
    ).groups()
    assert (
        idle(one_forward_one_backward, p, m, backward=2) == idle(gpipe, p, m, backward=2) == Fraction(p - 1, m + p - 1)
    )

    def stored(order: Order) -> list[int]:
        return [most_stored(order(rank, p, m)) for rank in range(p)]

    assert set(stored(gpipe)) == {{"m": m, "p": p}[stored_by_gpipe]}
    assert max(stored(one_forward_one_backward)) == min(m, {"m": m, "p": p}[stored_by_1f1b])
