"""Every rank at every line, in a real browser: columns of values, what moved, exact outputs, one rank followed."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page
from pypdf import PdfReader

from trace_page.read.course import join
from trace_page.read.trace import Trace
from trace_page.record.recording import Recording

pytest_plugins = ["page_fixtures"]

Open = Callable[..., Page]


@pytest.fixture
def at(open_page: Open, exchange: Trace) -> Open:
    """Opens the recorded program's page at the `occurrence`-th step of a line with this text."""

    def open_at(text: str, occurrence: int = 0, query: str = "", **options: object) -> Page:
        return open_page(f"?step={step_at(exchange, text, occurrence)}{query}", name="exchange", **options)

    return open_at


def step_at(trace: Trace, text: str, occurrence: int = 0) -> int:
    source = trace.files["exchange.py"].split("\n")
    inside = (n for n, step in enumerate(trace.steps) if step.here.function in ("exchange", "alone", "main"))
    return [number for number in inside if text in source[trace.steps[number].here.line - 1]][occurrence]


def moved(page: Page) -> list[list[str]]:
    """The cells of what moved, a list a rank: its name, before, arrow, after. All ranks of a collective share one."""
    read = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim().replace(/\\s+/g, ' ')))"
    return page.locator(".moved tbody tr").evaluate_all(read)


def colours(place: Locator) -> list[str]:
    """The class of the rank that each box of a place came from; "sum" for a sum."""
    found = place.locator(".cell, .block").evaluate_all("boxes => boxes.map(box => box.className)")
    return [re.search(r"sum|came (r\d)|$", name)[1] or re.search("sum|$", name)[0] for name in found]


def shown(page: Page) -> dict[str, list[str]]:
    """Each variable of the panel with its text in each column; one text when it is drawn once for all."""
    return page.evaluate(
        """() => {
            const found = {};
            const tidy = text => text.replace(/\\s+/g, ' ').trim();
            for (const body of document.querySelectorAll('.columns-of-ranks tbody')) {
                const columns = [...body.querySelectorAll('.differs')].map(cell => tidy(cell.innerText));
                for (const name of body.querySelectorAll('.head b')) {
                    const cell = name.closest('.short') ? name.parentElement : name.closest('td');
                    const text = columns.length ? '' : tidy(cell.innerText.replace('same on all ranks', ''));
                    found[name.textContent] = columns.length ? columns : [text.replace(name.textContent, '').trim()];
                }
            }
            return found;
        }"""
    )


# Values


def test_a_column_a_rank_shows_what_differs_and_once_what_is_equal(at: Open) -> None:
    page = at("data = torch")
    assert page.locator(".from").inner_text() == "2 ranks, recorded run"
    assert page.locator(".columns-of-ranks thead th").all_inner_texts() == ["rank 0", "rank 1"]
    values = shown(page)
    assert values["rank"] == ["0", "1"]
    assert values["world_size"] == ["2"]
    assert values["data"] == ["0 1 2 3", "1 2 3 4"]
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert shown(page)["data"] == ["int64, shape 4 1 3 5 7"], "the all-reduce made it equal"
    assert "same on all ranks" in page.locator(".fresh").inner_text()


def test_what_the_line_changed_is_marked_on_the_ranks_that_changed_it(at: Open) -> None:
    page = at("data = torch")
    assert page.locator(".fresh .head b").all_inner_texts() == ["data"]
    assert page.locator(".differs.changed").count() == 2
    page = at("message = torch.tensor")
    assert page.locator(".fresh .head b").all_inner_texts() == ["message"]
    assert len(page.locator(".differs.changed").all_inner_texts()) == 1, "rank 1 is not there"
    page = at('print("alike")')
    assert page.locator(".fresh").count() == 0


def test_a_rank_that_does_not_execute_the_line_says_so_and_where_it_is(at: Open, exchange: Trace) -> None:
    source = exchange.files["exchange.py"].split("\n")
    head = at("message = torch.tensor").locator(".columns-of-ranks thead th").nth(1)
    never = int(re.search(r"never executes this line: it is after line (\d+)$", head.inner_text())[1])
    assert "if rank == 0" in source[never - 1]
    head = at("the turn of rank").locator(".columns-of-ranks thead th").nth(1)
    elsewhere = int(re.search(r"not here now: it is after line (\d+)$", head.inner_text())[1])
    assert "if turn == rank" in source[elsewhere - 1]


def test_the_receive_has_a_step_of_its_own(at: Open, exchange: Trace) -> None:
    page = at("dist.send")
    receive = line_of(exchange, "dist.recv(")
    while f"line {receive}," not in page.locator(".status").inner_text():
        page.keyboard.press("l")
    heads = page.locator(".columns-of-ranks thead th").all_inner_texts()
    assert "never executes this line" in heads[0] and heads[1] == "rank 1"
    assert moved(page)[1] == ["rank 1", "—", "→", "1.5 2."]
    address = page.url
    assert re.search(r"[?&]step=\d+\.\d+", address), "no traced step is there"
    told = page.locator(".status").inner_text()
    page.goto("about:blank")
    page.goto(address)
    assert page.locator(".status").inner_text() == told


@pytest.mark.parametrize("rank", [0, 1])
def test_a_followed_rank_steps_through_its_own_lines(at: Open, recording: Recording, rank: int) -> None:
    page = at("def exchange", query=f"&rank={rank}")
    lines = [step.line for step in recording.calls[0].ranks[rank].steps]
    walked = []
    for _ in lines:
        walked.append(int(re.search(r"line (\d+), exchange", page.locator(".status").inner_text())[1]))
        page.keyboard.press("l")
    assert walked == lines
    for _ in lines:
        page.keyboard.press("h")
    assert f"line {lines[0]}, exchange" in page.locator(".status").inner_text()


def test_what_is_not_filled_or_not_recorded_is_not_drawn_as_a_value(at: Open) -> None:
    page = at("mine = ")
    assert shown(page)["parts"] == ["list of 2 0–1: not filled yet"]
    page.keyboard.press("j")
    assert shown(page)["parts"] == ["list of 2 0: 10 1: 11"]
    page = at("big = ")
    assert "content not recorded" in shown(page)["big"][0]
    assert "same on all ranks" not in page.locator(".fresh").inner_text(), "nobody has compared them"


def test_what_json_has_not_is_drawn_as_python_writes_it(at: Open) -> None:
    page = at("odd = ")
    page.keyboard.press("j")
    drawn = shown(page)["odd"][0]
    for written in ("0: None", "1: device(type='cpu')", "(0, 1): (1+0j) …", f"{2**62} -1"):
        assert written in drawn, drawn


def test_every_step_shows_the_recorded_variables_of_every_rank(at: Open, exchange: Trace, recording: Recording) -> None:
    joined = join(exchange, recording).recorded
    page = at("def exchange")
    for number, (index, turns) in joined.items():
        page.locator(".controls input").fill(str(number))
        values = shown(page)
        held = [rank.values_after(turn.last) for rank, turn in zip(recording.calls[index].ranks, turns, strict=True)]
        assert set(values) == set().union(*held), number
        for name in ("rank", "world_size", "turn"):
            expected = [str(variables[name]) if name in variables else "—" for variables in held]
            if name in values:
                assert values[name] == (expected[:1] if len(set(expected)) == 1 else expected), (number, name)


def test_elsewhere_the_values_are_the_traces(at: Open) -> None:
    page = at("start(exchange")
    assert page.locator(".from").inner_text() == "traced, in one process"
    assert page.locator(".columns-of-ranks").count() == 0


# What moved


def test_a_reduction_shows_inputs_in_their_ranks_colours_and_grey_sums(at: Open) -> None:
    page = at("dist.all_reduce")
    assert moved(page) == [["rank 0", "0 1 2 3", "→", "1 3 5 7"], ["rank 1", "1 2 3 4", "1 3 5 7"]]
    for rank in (0, 1):
        row = page.locator(".moved tbody tr").nth(rank)
        assert colours(row.locator("td").first) == [f"r{rank}"] * 4
        assert colours(row.locator("td").last) == ["sum"] * 4
        assert row.locator(".strip").first.locator("i").count() == 2
    assert "all_reduce sum" in page.locator(".moved caption").inner_text()


def test_what_only_moves_keeps_the_colour_of_the_rank_it_came_from(at: Open) -> None:
    page = at("dist.all_gather")
    assert moved(page) == [["rank 0", "10", "→", "1 10 1 11"], ["rank 1", "11", "1 10 1 11"]]
    for rank in (0, 1):
        row = page.locator(".moved tbody tr").nth(rank)
        assert colours(row.locator("td").first) == [f"r{rank}"]
        assert colours(row.locator("td").last) == ["r0", "r1"]


def test_a_send_and_its_receive_are_one_picture(at: Open) -> None:
    page = at("dist.send")
    assert moved(page) == [["rank 0", "1.5 2.", "→", "sent to rank 1"], ["rank 1", "—", "→", "1.5 2."]]
    assert colours(page.locator(".moved")) == ["r0"] * 4
    assert re.search(r"send → recv rank 0 in line \d+, rank 1 in line \d+", page.locator(".moved").inner_text())


def test_a_line_that_communicates_nothing_shows_no_move(at: Open) -> None:
    assert at("dist.barrier").locator(".moved").count() == 0
    assert at("mine = ").locator(".moved").count() == 0


# Outputs


def outputs(page: Page, line: int) -> dict[str, list[str]]:
    rows = page.locator(f"#L{line} + .output .rank:visible").all()
    return {row.locator(".name").inner_text(): row.locator("code").all_text_contents() for row in rows}


def line_of(trace: Trace, text: str, occurrence: int = 0) -> int:
    lines = enumerate(trace.files["exchange.py"].split("\n"), 1)
    return [number for number, line in lines if text in line][occurrence]


def test_outputs_are_those_of_the_print_even_when_two_look_alike(at: Open, exchange: Trace) -> None:
    page = at("start(exchange")
    for occurrence in (0, 1):
        assert outputs(page, line_of(exchange, 'print("alike")', occurrence)) == {
            f"rank {rank}": ["alike"] for rank in (0, 1)
        }
    turns = outputs(page, line_of(exchange, 'print(f"turn'))
    assert turns == {f"rank {rank}": ["turn 0", "turn 1", "turn 2"] for rank in (0, 1)}
    assert outputs(page, line_of(exchange, "torch.full")) == {"rank 0": ["tensor([[7, 7],\n        [7, 7]]) <b>"]}
    assert outputs(page, line_of(exchange, "nobody")) == {"rank 0": ["nobody but rank 0"] * 2}
    assert page.locator(f"#L{line_of(exchange, 'before any')} + .output code").inner_text() == "before any rank"
    assert page.locator("#rest").count() == 0


def test_those_of_the_current_step_are_marked(at: Open) -> None:
    page = at('print(f"turn', 1)
    assert page.locator("code.now").all_inner_texts() == ["turn 1", "turn 1"]
    for _ in range(2):
        page.keyboard.press("l")
    assert page.locator("code.now").all_inner_texts() == ["the turn of rank 1"], "which rank 1 alone executes here"


def test_the_page_says_what_was_recorded_on_what(at: Open) -> None:
    told = at("start(exchange").locator(".about").inner_text()
    assert "Recorded with gloo on CPUs, world size 2 and 1, PyTorch 2." in told


# Following one rank


def test_a_rank_is_followed_by_key_click_or_address_and_left_again(at: Open) -> None:
    page = at("data = torch")

    def columns() -> list[str]:
        return page.locator(".columns-of-ranks thead th").all_inner_texts()

    def button(name: str) -> Locator:
        return page.get_by_role("group", name="Follow a rank").get_by_role("button", name=name)

    for enter in (lambda: page.keyboard.press("1"), button("rank 1").click):
        for leave in (lambda: page.keyboard.press("1"), lambda: page.keyboard.press("Escape"), button("all").click):
            enter()
            assert columns() == ["rank 1"] and "rank=1" in page.url
            assert button("rank 1").get_attribute("aria-pressed") == "true"
            assert shown(page)["data"] == ["int64, shape 4 1 2 3 4"]
            assert page.locator(".status").inner_text().endswith(", rank 1")
            leave()
            assert columns() == ["rank 0", "rank 1"] and "rank" not in page.url
    page.keyboard.press("0")
    page.keyboard.press("1")
    assert columns() == ["rank 1"], "from one rank to another"
    page.keyboard.press("l")
    page.reload()
    assert columns() == ["rank 1"] and "rank=1" in page.url
    page.keyboard.press("7")
    assert columns() == ["rank 1"], "there is no rank 7"


@pytest.mark.parametrize("query", ["&rank=7", "&rank=", "&rank=x", "&rank=-1"])
def test_an_address_with_no_such_rank_shows_all(at: Open, query: str) -> None:
    assert at("data = torch", query=query).locator(".columns-of-ranks thead th").count() == 2


def test_only_the_followed_ranks_outputs_show(at: Open, exchange: Trace) -> None:
    page = at("data = torch", query="&rank=1")
    assert outputs(page, line_of(exchange, 'print("alike")')) == {"rank 1": ["alike"]}
    assert not page.locator(f"#L{line_of(exchange, 'torch.full')} + .output").is_visible()
    assert page.locator(f"#L{line_of(exchange, 'before any')} + .output").is_visible(), "no rank's, so everybody's"
    page.keyboard.press("Escape")
    assert page.locator(".rank:visible").count() == page.locator(".rank").count()


def test_a_program_without_the_followed_rank_says_so(at: Open) -> None:
    page = at("nobody but", query="&rank=1")
    assert "no rank 1" in page.locator(".values").inner_text()
    assert page.locator(".columns-of-ranks thead th").all_inner_texts() == ["rank 0"]


def test_the_help_tells_of_it(at: Open) -> None:
    page = at("data = torch")
    page.keyboard.press("?")
    page.keyboard.press("1")
    assert "follow this rank alone" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".columns-of-ranks thead th").count() == 2


# Without a recording


def test_without_a_recording_the_page_is_as_before_and_says_so(open_page: Open) -> None:
    page = open_page("?step=40&rank=1")
    assert "rank 0 alone, with communication switched off" in page.locator(".about").inner_text()
    assert page.locator(".follow").count() == 0 and page.locator("#ranks").count() == 0
    page.keyboard.press("1")
    page.keyboard.press("Escape")
    assert "rank" not in page.locator(".status").inner_text().split(", line")[1]
    page.keyboard.press("?")
    assert "follow" not in page.get_by_role("dialog").inner_text()


# Everywhere


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_axe_finds_no_violation_and_nothing_is_too_wide(at: Open, width: int, scheme: str) -> None:
    for line, query in (("dist.all_reduce", ""), ("dist.send", "&rank=1"), ("torch.full", "")):
        page = at(line, query=query, width=width, height=844, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()


def test_without_script_the_outputs_are_there_and_the_page_says_what_needs_it(browser: object, lesson: Path) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto((lesson / "var/traces/exchange.html").as_uri())
    told = page.locator("body").inner_text()
    assert "the turn of rank 1" in told and "needs JavaScript" in told and "Follow" not in told
    page.close()


def test_on_paper_there_are_the_outputs_of_all_ranks(at: Open) -> None:
    page = at("dist.all_reduce")
    text = "".join(part.extract_text() for part in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages)
    assert "the turn of rank 1" in re.sub(r"\s+", " ", text) and "recorded run" not in text


# The command


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess:
    code = "import sys; from trace_page.__main__ import main; sys.exit(main(sys.argv[1:]))"
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent.parent)!r}); {code}"
    return subprocess.run([sys.executable, "-c", setup, *arguments], cwd=directory, capture_output=True, text=True)


def test_a_run_that_cannot_be_recorded_is_told_and_changes_no_file(lesson: Path) -> None:
    files = {path: path.read_bytes() for path in (lesson / "var/traces").iterdir()}
    result = run(["lesson"], lesson)
    assert result.returncode == 1
    assert "has not called torch.multiprocessing.spawn" in result.stderr
    assert {path: path.read_bytes() for path in (lesson / "var/traces").iterdir()} == files


def of_another_source(copy: Path) -> None:
    recorded = json.loads((copy / "exchange_recording.json").read_text())
    recorded["files"]["exchange.py"] = "0" * 64
    (copy / "exchange_recording.json").write_text(json.dumps(recorded))


def not_json(copy: Path) -> None:
    (copy / "exchange_recording.json").write_text("{")


def of_another_version(copy: Path) -> None:
    (copy / "exchange_recording.json").write_text('{"version": 99}')


def of_another_run(copy: Path) -> None:
    log = copy / "exchange_stdout.txt"
    log.write_text(log.read_text().replace("turn 1", "turn 5"))


def without_its_log(copy: Path) -> None:
    (copy / "exchange_stdout.txt").unlink()


@pytest.mark.parametrize(
    "spoil, told",
    [
        (of_another_source, "is a recording of another exchange.py: record it again"),
        (not_json, "exchange_recording.json is not JSON"),
        (of_another_version, "exchange_recording.json.*version"),
        (of_another_run, "is of another run than the recording, which has the line 'turn 1'"),
        (without_its_log, "no log .*exchange_stdout.txt beside the recording"),
    ],
)
def test_a_recording_that_does_not_belong_is_one_clear_line(
    lesson: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    spoil: Callable[[Path], None],
    told: str,
) -> None:
    from trace_page.__main__ import main

    traces = tmp_path / "var/traces"
    traces.mkdir(parents=True)
    (tmp_path / "exchange.py").write_bytes((lesson / "exchange.py").read_bytes())
    for path in (lesson / "var/traces").glob("exchange*"):
        (traces / path.name).write_bytes(path.read_bytes())
    before = (traces / "exchange.html").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert main(["exchange", "--no-record"]) == 0
    spoil(traces)
    assert main(["exchange", "--no-record"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(told, error), error
    assert (traces / "exchange.html").read_bytes() == before
