"""Links and pictures of the narration are there, and the functions that it names exist."""

import re
import struct
import warnings
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
import torch.distributed as dist
from narration import MARKDOWN_LINK, ROOT, TEXTS, TOLD, Told, sentence
from ranks import RankPool

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
    stated = sentence(r"Before torch 2.13, `(\w+)` was `(\w+)`", r"`(\w+)` was `(\w+)`").groups()
    assert stated == ("reduce_scatter_single", "reduce_scatter_tensor", "all_gather_single", "all_gather_into_tensor")
    for noted in pool.run(old_names, 2):
        for (same, messages), old in zip(noted, stated[1::2], strict=True):
            assert same
            assert any(old in message for message in messages) and len(messages) == 1, messages
