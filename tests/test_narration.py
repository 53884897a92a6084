"""What the narration states is computed here, or stands with a link to its source, and links and pictures are there."""

import ast
import re
import struct
import warnings
import zlib
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, takewhile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
import torch.distributed as dist
from ranks import RankPool

import gpu_util
import lecture_07

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "lecture_07.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)


@dataclass(frozen=True)
class Told:
    """A call that shows something: text, note, link, article_link or image."""

    function: str
    line: int
    kind: str
    content: str
    """The text, the link's title or the picture's path."""
    urls: tuple[str, ...] = ()
    width: int | None = None


MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def told_by(function: ast.FunctionDef) -> list[Told]:
    """What a function of the lecture shows, in order."""
    told = []
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        kind, args = node.func.id, [ast.literal_eval(arg) for arg in node.args if isinstance(arg, ast.Constant)]
        options = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
        if kind in ("text", "note"):
            urls = tuple(url for _, url in MARKDOWN_LINK.findall(args[0]))
            told.append(Told(function.name, node.lineno, kind, args[0], urls))
        elif kind in ("link", "article_link", "post_link", "video_link"):
            title = options.get("title", kind.removesuffix("_link"))
            told.append(Told(function.name, node.lineno, "link", title, (options.get("url") or args[0],)))
        elif kind == "image":
            told.append(Told(function.name, node.lineno, kind, args[0], width=options["width"]))
    return sorted(told, key=lambda each: each.line)


TOLD = [told for node in TREE.body if isinstance(node, ast.FunctionDef) for told in told_by(node)]
TEXTS = [told for told in TOLD if told.kind in ("text", "note")]


def sentence(*patterns: str) -> re.Match:
    """The only text that holds the first pattern, matched against all of them at once."""
    (found,) = [told.content for told in TEXTS if re.search(patterns[0], told.content)]
    return re.search(".*?".join(patterns), found)


# Links and pictures


CONTRACT_LINKS = [
    ("main", "stdout for this lecture", "var/traces/lecture_07_stdout.txt"),
    ("main", "levanter", "https://crfm.stanford.edu/2023/06/16/levanter-1_0-release.html"),
    ("collective_operations", "article", "https://en.wikipedia.org/wiki/Collective_operation"),
    ("hardware", "article", "https://en.wikipedia.org/wiki/PCI_Express"),
    ("hardware", "talk", "https://www.nvidia.com/en-us/on-demand/session/gtcspring21-s31880/"),
    ("torch_distributed", "documentation", "https://pytorch.org/docs/stable/distributed.html"),
    (
        "benchmarking",
        "how to reason about bandwidth",
        "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#allreduce",
    ),
    (
        "benchmarking",
        "sample benchmark",
        "https://github.com/stas00/ml-engineering/blob/master/network/benchmarks/all_reduce_bench.py",
    ),
]


def test_links_of_the_contract_are_in_their_section() -> None:
    links = [(told.function, told.content, told.urls[0]) for told in TOLD if told.kind == "link"]
    assert links == CONTRACT_LINKS


@pytest.mark.parametrize("url", sorted({url for told in TOLD for url in told.urls}))
def test_every_link_is_well_formed(url: str) -> None:
    if url == "var/traces/lecture_07_stdout.txt":
        assert (ROOT / url).is_file()
        return
    parts = urlsplit(url)
    assert parts.scheme == "https"
    assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc)
    assert re.fullmatch(r"/[\w./~-]*", parts.path) and "//" not in parts.path
    assert re.fullmatch(r"[\w-]*", parts.fragment) and not parts.query


def test_no_text_holds_half_a_link() -> None:
    for told in TEXTS:
        rest = MARKDOWN_LINK.sub("", told.content)
        assert "http" not in rest and "](" not in rest and not re.search(r"[\[\]]", re.sub(r"`[^`]*`", "", rest))


def png_text(path: Path) -> dict[str, str]:
    """The tEXt entries of a PNG file (https://www.w3.org/TR/png/#11tEXt)."""
    data, position, entries = path.read_bytes(), 8, {}
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    while position < len(data):
        (length,), kind = struct.unpack(">I", data[position : position + 4]), data[position + 4 : position + 8]
        content = data[position + 8 : position + 8 + length]
        assert zlib.crc32(kind + content) == int.from_bytes(data[position + 8 + length : position + 12 + length], "big")
        if kind == b"tEXt":
            key, value = content.split(b"\0")
            entries[key.decode("latin-1")] = value.decode("latin-1")
        position += 12 + length
    return entries


IMAGES = [told for told in TOLD if told.kind == "image"]


@pytest.mark.parametrize("image", IMAGES, ids=[f"line {image.line}" for image in IMAGES])
def test_every_picture_is_there_and_shown_as_wide_as_it_was_drawn_for(image: Told) -> None:
    assert image.width == int(png_text(ROOT / image.content)["Display-Width"])


def test_every_picture_is_shown() -> None:
    assert {image.content for image in IMAGES} == {f"images/{path.name}" for path in (ROOT / "images").glob("*.png")}


def test_the_picture_of_each_collective_stands_under_its_heading() -> None:
    heading = None
    for told in TOLD:
        if told.function == "collective_operations" and told.content.startswith("### "):
            heading = told.content.removeprefix("### ").lower()
        elif told.function == "collective_operations" and told.kind == "image" and heading:
            assert told.content == f"images/{heading}.png"


# Figures


BLACKWELL = "https://docs.nvidia.com/cuda/blackwell-tuning-guide/"
HOPPER = "https://docs.nvidia.com/cuda/hopper-tuning-guide/"
DGX_B200 = "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html"
NVL72 = "https://www.nvidia.com/en-us/data-center/gb200-nvl72/"
META = "https://engineering.fb.com/2024/03/12/data-center-engineering/building-metas-genai-infrastructure/"

# What the sources say, in bytes a second unless it is bits.
HBM, NVLINK_BOTH, NVLINK_H100_BOTH, INFINIBAND_BITS, GIGABIT = 8e12, 1.8e12, 900e9, 400e9, 1e9
GPUS_PER_NODE, GPUS_PER_RACK = 8, 18 * 4
NVLINK, NVLINK_H100, INFINIBAND = NVLINK_BOTH / 2, NVLINK_H100_BOTH / 2, INFINIBAND_BITS / 8

SOURCED = {
    HOPPER: ["256 KB", f"{NVLINK_H100 / 1e12:g} TB/s", f"{NVLINK_H100_BOTH / 1e12:g} TB/s"],
    BLACKWELL: [f"{HBM / 1e12:g} TB/s", f"{NVLINK / 1e12:g} TB/s", f"{NVLINK_BOTH / 1e12:g} TB/s"],
    DGX_B200: ["400 Gb/s", f"{INFINIBAND / 1e12:g} TB/s", "8 GPUs", "2 NVSwitch", "14.4 TB/s"],
    NVL72: [f"{GPUS_PER_RACK} GPUs", "130 TB/s"],
    META: ["24 000"],
    "https://en.wikipedia.org/wiki/PCI_Express": ["63 GB/s", "242 GB/s"],
    "https://en.wikipedia.org/wiki/Gigabit_Ethernet": [f"{GIGABIT / 8 / 1e9:g} GB/s"],
}
"""For each source the figures that it gives, or that are another unit or a half of one that it gives."""

COMPUTED = [
    f"{HBM / NVLINK:.0f} times",
    f"{NVLINK / INFINIBAND:.0f} times",
    f"{HBM / INFINIBAND:.0f} times",
    f"{HBM / NVLINK_BOTH:.0f} times",
]
"""Figures that follow from others. The tests below compute in their place those that hang on more than two numbers."""

MEASURED = ["1.4 to", "1.6 ms", "2.4 to", "2.6 ms", "393 to", "457 GB/s", "483 to", "526 GB/s"]
MEASURED += ["2 cores", "0.9 GB/s", "0.3 GB/s"]
"""No page states these: the lecture's own two benchmarks gave them. Tests below check that they fit together."""
MEASURED_ON_CPU = {2**18: (0.26, 0.24), 2**20: (0.51, 0.34), 2**22: (0.87, 0.31), 2**24: (0.97, 0.31)}
"""By float32 per rank: GB/s of all-reduce and reduce-scatter with gloo on 2 cores, medians of 5 runs of torch 2.13."""

SETTINGS = {"main": ["16 bytes", "25 MB", "4 gradients", "1.6 MB", "4 layers", "3 ranks", "0.52 MB", "4 micro-batches"]}
SETTINGS["main"] += ["2048 rows"]
SETTINGS |= {"collective_operations": ["4"], "benchmarking": ["4 GPUs", "4 times"]}
SETTINGS["pipeline_parallelism"] = ["1/5 for", "2 ranks", "4 micro-batches", "32 rows"]
"""Figures of the demos themselves, by section; tests below compute them from the calls."""

LABELS = [  # digits that are part of a name or count off, and state nothing
    r"`[^`]*`",  # code
    r"\$[^$]*\$",  # formulas: tested below
    r"\[[^\]]*\]\([^)]*\)",  # links
    r"\b[A-Z]+\d+s?\b",  # B200, H100s, NVL72
    r"PCIe \d\.0 ×16",
    r"Llama 3|Torch 2\.13|float32",
    r"10⁹ bytes",  # what GB means here: the tests of the bandwidths count with it
    r"[Rr]ank \d|: 0, 1, 2, 3\.",
    r"# Part \d",
    r"no factor 2",
    r"\d+ × \d+",  # shapes: the test of what a rank sends counts with them
]
FIGURE = re.compile(r"(?<![\w.])(\d+(?:\s\d{3})*(?:[./]\d+)?)(?:\s([A-Za-z/-]+))?")


def figures(text: str) -> list[str]:
    """The figures of a text, each with the word after it."""
    for label in LABELS:
        text = re.sub(label, "", text)
    return [" ".join(filter(None, (re.sub(r"\s", " ", number), unit))) for number, unit in FIGURE.findall(text)]


def sources_of(told: Told) -> list[str]:
    """The links in a text, or those right below the list in which it stands."""
    if told.urls:
        return list(told.urls)
    below = TOLD[TOLD.index(told) + 1 :]
    items = list(takewhile(lambda each: each.kind == "text" and each.content.startswith("- "), below))
    links = takewhile(lambda each: each.kind == "link", below[len(items) :])
    return [url for link in links for url in link.urls]


WITH_FIGURES = [told for told in TEXTS if figures(told.content)]


@pytest.mark.parametrize("told", WITH_FIGURES, ids=[f"line {told.line}" for told in WITH_FIGURES])
def test_every_figure_is_computed_or_stands_with_its_source(told: Told) -> None:
    sourced = [figure for url in sources_of(told) for figure in SOURCED.get(url, [])]
    measured = MEASURED if told.function == "benchmarking" else []
    assert set(figures(told.content)) <= {*sourced, *COMPUTED, *measured, *SETTINGS.get(told.function, [])}


def test_every_known_figure_is_in_the_narration() -> None:
    """A figure that is no longer told has no place in the lists above either."""
    told = {figure for told in TEXTS for figure in figures(told.content)}
    assert told == {*COMPUTED, *MEASURED, *chain(*SOURCED.values(), *SETTINGS.values())}


def test_figures_are_found_in_any_text() -> None:
    text = "A B200 has 8 GPUs, 1.8 TB/s, 24 000 H100s, half (1/5), `x[3]`, $n-1$, [8 TB/s](https://x.org) and is 3"
    assert figures(text) == ["8 GPUs", "1.8 TB/s", "24 000", "1/5", "3"]


def test_the_ratios_of_the_hierarchy_are_those_of_its_figures() -> None:
    stated = sentence(
        r"HBM is (\d+) times",
        r"NVLink each way \((\d+) times, counting both",
        r"NVLink (\d+) times",
        r"InfiniBand: (\d+) times",
    )
    ratios = (HBM / NVLINK, HBM / NVLINK_BOTH, NVLINK / INFINIBAND, HBM / INFINIBAND)
    assert [int(ratio) for ratio in stated.groups()] == [round(ratio) for ratio in ratios]


def test_one_bandwidth_in_two_units_or_directions_is_the_same() -> None:
    bits, terabytes = sentence(r"(\d+) Gb/s = ", r"(\d\.\d+) TB/s each way").groups()
    assert float(bits) / 8 / 1000 == float(terabytes)
    directions = r"(\d\.\d+) TB/s each way", r"(\d\.\d+) TB/s in both directions together"
    each_way, both = sentence(r"NVLink / NVSwitch", *directions).groups()
    assert float(both) == 2 * float(each_way) == NVLINK_BOTH / 1e12
    each_way, both = sentence(r"An H100's NVLink has half", *directions).groups()
    assert float(both) == 2 * float(each_way) == NVLINK_BOTH / 2 / 1e12


def test_bandwidths_of_a_node_and_of_a_rack_are_those_of_their_gpus() -> None:
    gpus, together = sentence(r"A DGX B200 has (\d+) GPUs", r"(\d+\.\d+) TB/s together").groups()
    assert float(together) == pytest.approx(int(gpus) * NVLINK_BOTH / 1e12)
    gpus, together = sentence(r"rack of (\d+) GPUs", r"(\d+) TB/s together").groups()
    assert float(together) == round(int(gpus) * NVLINK_BOTH / 1e12, -1), "to two digits"
    assert int(gpus) == GPUS_PER_RACK


def test_pcie_is_slower_than_nvlink() -> None:
    assert float(sentence(r"(\d+) GB/s each way: still less than NVLink does")[1]) * 1e9 < NVLINK_H100


@pytest.mark.parametrize(("benchmark", "gibibytes"), [("all-reduce", (366, 426)), ("reduce-scatter", (450, 490))])
def test_measured_bandwidths_follow_from_the_measured_times(benchmark: str, gibibytes: tuple[int, int]) -> None:
    pattern = rf"(\d\.\d) to (\d\.\d) ms \({benchmark}, (\d+) to (\d+) GB/s\)"
    shortest, longest, least, most = map(float, sentence(r"What to expect on GPUs", pattern).groups())
    assert (least, most) == tuple(round(each * 2**30 / 1e9) for each in gibibytes)
    world_size, size = 4, gpu_util.GPU_NUM_ELEMENTS * 4
    sent = size * (2 * (world_size - 1) / world_size if benchmark == "all-reduce" else world_size - 1)
    rounding = 0.05  # of a time in ms
    assert sent / (longest + rounding) / 1e6 <= least <= sent / (longest - rounding) / 1e6
    assert sent / (shortest + rounding) / 1e6 <= most <= sent / (shortest - rounding) / 1e6


def test_bandwidths_told_for_a_cpu_are_those_measured_at_the_size_that_the_lecture_takes() -> None:
    told = sentence(r"What to expect on CPUs", r"(\d\.\d) GB/s for all-reduce", r"(\d\.\d) GB/s for reduce-scatter")
    assert tuple(map(float, told.groups())) == tuple(
        round(each, 1) for each in MEASURED_ON_CPU[gpu_util.CPU_NUM_ELEMENTS]
    )


def test_benchmark_sizes_are_as_commented() -> None:
    powers = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
    comment = re.search(r"# (\d+) · (\d+)(\S) on GPUs, (\d)(\S+) on CPUs", SOURCE).groups()
    factor, base, power, cpu_base, cpu_power = ("".join(powers.get(digit, digit) for digit in each) for each in comment)
    assert int(factor) * int(base) ** int(power) == gpu_util.GPU_NUM_ELEMENTS
    assert int(cpu_base) ** int(cpu_power) == gpu_util.CPU_NUM_ELEMENTS


# Formulas


def formula(text: str, **values: int) -> Fraction:
    """The value of a formula."""
    product = re.sub(r"(\d)\(", r"\1*(", text)
    return eval(product, {name: Fraction(value) for name, value in values.items()})


def around_a_ring(world_size: int) -> tuple[Fraction, Fraction]:
    """What a rank sends, as a part of its data, in a reduce-scatter and in an all-reduce around a ring of ranks."""
    ranks = range(world_size)
    data = [[10**piece * (rank + 1) for piece in ranks] for rank in ranks]
    sums = [sum(pieces) for pieces in zip(*data, strict=True)]
    sent, parts_sent = 0, []
    for phase in ("reduce-scatter", "all-gather"):
        for step in range(world_size - 1):
            shift = step if phase == "reduce-scatter" else step - 1  # rank r now passes on piece r - shift
            messages = [((rank - shift) % world_size, data[rank][(rank - shift) % world_size]) for rank in ranks]
            sent += 1
            for rank in ranks:
                piece, value = messages[rank - 1]
                data[rank][piece] = value + (data[rank][piece] if phase == "reduce-scatter" else 0)
        parts_sent.append(Fraction(sent, world_size))
        if phase == "reduce-scatter":
            assert all(data[rank][(rank + 1) % world_size] == sums[(rank + 1) % world_size] for rank in ranks)
    assert data == [sums] * world_size
    return parts_sent[0], parts_sent[1]


@pytest.mark.parametrize("world_size", range(2, 9))
def test_a_rank_sends_around_a_ring_what_the_formulas_say(world_size: int) -> None:
    once, twice = around_a_ring(world_size)
    reduce_scatter = sentence(r"all pieces of its input but its own", r"once: \$([^$]+)\$ of the input")[1]
    assert formula(reduce_scatter, n=world_size) == once
    all_reduce = sentence(r"all pieces of the data but one", r"twice \$([^$]+)\$ of the data")[1]
    assert 2 * formula(all_reduce, n=world_size) == twice


def idle(num_ranks: int, num_micro_batches: int) -> Fraction:
    """The part of the time that a rank waits: each stage takes one unit for a micro-batch, as soon as it can."""
    done = {}
    for micro_batch in range(num_micro_batches):
        for rank in range(num_ranks):
            ready = max(done.get((rank - 1, micro_batch), 0), done.get((rank, micro_batch - 1), 0))
            done[rank, micro_batch] = ready + 1
    total = max(done.values())
    return Fraction(total - num_micro_batches, total)


def demo_options(program: str) -> dict[str, int]:
    """The sizes with which the lecture spawns a per-rank program."""
    (call,) = [
        node for node in ast.walk(TREE)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "spawn" and ast.unparse(node.args[0]) == program
    ]  # fmt: skip
    return {option.arg: option.value.value for option in call.keywords if isinstance(option.value, ast.Constant)}


def test_the_bubble_is_what_a_schedule_leaves_idle() -> None:
    told = r"\$([^$]+)\$ of the time: (\d+/\d+) for (\d+) ranks and (\d+) micro-batches"
    text, stated, ranks, micro_batches = sentence("the \\*\\*bubble\\*\\*", told).groups()
    for p in range(1, 6):
        for m in range(1, 9):
            assert formula(text, p=p, m=m) == idle(p, m)
    assert Fraction(stated) == idle(int(ranks), int(micro_batches))
    options = demo_options("pipeline_parallelism_main")
    assert (options["world_size"], options["num_micro_batches"]) == (int(ranks), int(micro_batches))


def test_a_rank_sends_in_the_demos_what_is_stated() -> None:
    batch, dim = lecture_07.generate_sample_data().shape

    def told(*patterns: str) -> list[float]:
        return [float(number) for number in sentence(*patterns).groups()]

    def megabytes(num_elements: Fraction | int) -> float:
        return float(f"{float(num_elements * torch.float32.itemsize) / 1e6:.2g}")

    options = demo_options("data_parallelism_main")
    _, all_reduce = around_a_ring(options["world_size"])
    layers = options["num_layers"]
    stated = told(r"Data parallelism: (\S+) MB", r"(\d+) gradients of (\d+) × (\d+)")
    assert stated == [megabytes(all_reduce * layers * dim * dim), layers, dim, dim]

    options = demo_options("tensor_parallelism_main")
    layers, others, local_dim = options["num_layers"], options["world_size"] - 1, dim // options["world_size"]
    stated = told(r"Tensor parallelism: (\S+) MB", r"(\d+) layers activations of (\d+) × (\d+) to (\d+) ranks")
    assert stated == [megabytes(layers * others * batch * local_dim), layers, batch, local_dim, others]
    assert told("not the amount", r"beyond (\d+) rows") == [all_reduce * dim * dim / (others * local_dim)]

    options = demo_options("pipeline_parallelism_main")
    micro_batches, rows = options["num_micro_batches"], batch // options["num_micro_batches"]
    stated = told(r"Pipeline parallelism: (\S+) MB", r"(\d+) micro-batches with activations of (\d+) × (\d+)")
    assert stated == [megabytes(micro_batches * rows * dim), micro_batches, rows, dim]


def test_adamw_keeps_as_many_bytes_for_a_parameter_as_stated() -> None:
    parameter = torch.nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.AdamW([parameter])
    parameter.square().sum().backward()
    optimizer.step()
    state = [value for value in optimizer.state[parameter].values() if value.shape == parameter.shape]
    kept = sum(tensor.numel() * tensor.element_size() for tensor in [parameter, parameter.grad, *state])
    assert int(sentence(r"with AdamW", r"(\d+) bytes for each")[1]) == kept / parameter.numel()


def test_activations_of_equal_shards_are_larger_than_those_of_whole_layers() -> None:
    assert "larger than in the other demos" in sentence(r"every rank ends with the whole activations.*").group()
    options = demo_options("tensor_parallelism_main")
    whole = sharded = lecture_07.generate_sample_data()
    _, dim = whole.shape
    weight = lecture_07.get_init_params(dim, dim, rank=0)
    shard = lecture_07.get_init_params(dim, dim // options["world_size"], rank=0)
    for _ in range(options["num_layers"]):
        whole = torch.nn.functional.gelu(whole @ weight)
        sharded = torch.nn.functional.gelu(sharded @ torch.cat([shard] * options["world_size"], dim=1))
    assert sharded.std() > 2 * whole.std()


def test_a_micro_batch_has_as_many_rows_as_stated() -> None:
    rows = int(sentence(r"one line for each micro-batch, and sends its activations, (\d+) rows")[1])
    num_micro_batches = demo_options("pipeline_parallelism_main")["num_micro_batches"]
    assert rows * num_micro_batches == len(lecture_07.generate_sample_data())


def test_the_world_size_told_is_that_of_the_demos() -> None:
    told = int(sentence(r"\*\*World size\*\*.* (\d+)\.")[1])
    for program in ("collective_operations_main", "all_reduce", "reduce_scatter", "data_parallelism_main"):
        assert demo_options(program)["world_size"] == told
    assert demo_options("tensor_parallelism_main")["world_size"] == told
    assert int(sentence(r"because its input is (\d+) times as large")[1]) == told
    assert int(sentence(r"What to expect on GPUs: on (\d) GPUs")[1]) == told


# Names


def test_every_function_of_torch_distributed_that_is_told_exists() -> None:
    names = {name for told in TEXTS for name in re.findall(r"`dist\.(\w+)`", told.content)}
    assert names >= {"all_reduce", "reduce_scatter_single", "all_gather_single", "send", "recv"}
    for name in names | {"isend", "irecv", "reduce_scatter_tensor", "all_gather_into_tensor"}:
        assert callable(getattr(dist, name))


def old_names(rank: int, world_size: int) -> list[tuple[bool, list[str]]]:
    """For each renamed collective: whether the old name still does the same, and what it warns of."""
    noted = []
    many, one = torch.arange(world_size) + rank, torch.tensor([rank])
    for old, new, data, room in (
        ("reduce_scatter_tensor", "reduce_scatter_single", many, one),
        ("all_gather_into_tensor", "all_gather_single", one, many),
    ):
        results = torch.zeros_like(room), torch.zeros_like(room)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(dist, old)(results[0], data)
            getattr(dist, new)(results[1], data)
        noted.append((torch.equal(*results), [str(warning.message) for warning in caught]))
    return noted


def test_the_old_names_of_two_collectives_still_work_and_warn(pool: RankPool) -> None:
    stated = sentence(r"changed names: `(\w+)` was `(\w+)`", r"`(\w+)` was `(\w+)`").groups()
    assert stated == ("reduce_scatter_single", "reduce_scatter_tensor", "all_gather_single", "all_gather_into_tensor")
    for noted in pool.run(old_names, 2):
        for (same, messages), old in zip(noted, stated[1::2], strict=True):
            assert same
            assert any(old in message for message in messages) and len(messages) == 1, messages
