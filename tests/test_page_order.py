"""The order of execution: a function stands at the line that first calls it; raw mode shows the file as it is."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from pypdf import PdfReader

from trace_page.draw.page import TRACES, build_page, load_lecture_log, load_lecture_recording
from trace_page.read.trace import load_trace

pytest_plugins = ["page_fixtures"]

ROOT = Path(__file__).parent.parent
SOURCE = (Path(__file__).parent / "page_fixture/calls.py").read_text(encoding="utf-8").split("\n")
NUMBERS = "[...document.querySelectorAll('.file .no')].filter(no => no.offsetParent).map(no => Number(no.textContent))"

Open = Callable[..., Page]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE, 1) if text in line)


@pytest.fixture
def calls(open_page: Open) -> Page:
    return open_page(name="calls")


def test_a_function_stands_below_the_line_that_first_calls_it(calls: Page) -> None:
    seen = calls.evaluate(NUMBERS)
    for call, function in [
        ("    first()", "def first"),
        ("    counter = Counter()", "class Counter"),
        ("    depth([[[]]])", "def depth"),
        ("    last()", "def last"),
    ]:
        after = seen[seen.index(line_of(call)) + 1 :]
        above = "# Of a tree" if function == "def depth" else function
        assert after[0] == line_of(above), f"{function} is not what follows {call.strip()}"
    # helper is first called inside first, and stands there.
    order = [seen.index(line_of(text)) for text in ("def first", "def helper", '"\\x1b[31mred', "## Again")]
    assert order == sorted(order)


def test_each_line_is_there_once(calls: Page) -> None:
    numbers = calls.evaluate("[...document.querySelectorAll('.file .no')].map(no => Number(no.textContent))")
    code = calls.evaluate("[...document.querySelectorAll('.file .line .no')].map(no => Number(no.textContent))")
    assert set(numbers) == set(range(1, len(SOURCE) + 1)) and len(code) == len(set(code))


def test_a_later_call_links_to_where_the_function_stands(calls: Page) -> None:
    for line in [number for number, text in enumerate(SOURCE, 1) if text == "    helper()"]:
        link = calls.locator(f"#L{line} code a", has_text="helper")
        assert link.get_attribute("href") == f"#L{line_of('def helper')}"
    assert calls.locator(".called .called .f", has_text="helper").count() == 1


def test_raw_mode_is_the_file_line_by_line_and_back_again(calls: Page) -> None:
    told = calls.evaluate(NUMBERS)
    calls.keyboard.press("r")
    raw = calls.evaluate("[...document.querySelectorAll('.file .line .no')].map(no => Number(no.textContent))")
    assert raw == list(range(1, len(SOURCE) + 1))
    calls.keyboard.press("r")
    assert calls.evaluate(NUMBERS) == told


def test_steps_never_lead_back_up_the_page_by_more_than_a_window(open_page: Open) -> None:
    page = open_page(name="calls", height=300)
    positions = []
    for _ in range(int(page.locator(".controls input").get_attribute("max"))):
        page.keyboard.press("l")
        positions.append(page.evaluate("scrollY"))
    leaps = [one for one, other in zip(positions, positions[1:], strict=False) if one - other > 300]
    assert len(leaps) <= 1, "the second call of helper"


def test_a_folded_function_opens_when_a_step_leads_there(calls: Page) -> None:
    fold = calls.locator("details.called", has=calls.locator("summary code", has_text=re.compile("^first$"))).first
    fold.locator("> summary").click()
    assert fold.get_attribute("open") is None
    calls.locator(f"#L{line_of('    first()')} a.no").click()
    calls.keyboard.press("l")
    assert fold.get_attribute("open") is not None


def test_the_contents_are_in_the_order_of_the_page(calls: Page) -> None:
    places = calls.evaluate(
        "[...document.querySelectorAll('nav a[data-line]')]"
        ".map(link => document.querySelector(link.getAttribute('href')).getBoundingClientRect().top)"
    )
    assert places == sorted(places)


@pytest.mark.parametrize("options", [{"java_script_enabled": False}, {}], ids=["no script", "on paper"])
def test_without_script_and_on_paper_it_is_the_same_order(open_page: Open, options: dict) -> None:
    page = open_page(name="calls", **options)
    if options:
        text = page.locator("main").inner_text()
    else:
        text = "".join(part.extract_text() for part in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages)
    text = re.sub(r"\s+", "", text)
    places = [
        text.index(part) for part in ("defmain", "deffirst", "defhelper", "classCounter", "defdepth", "Thelastone.")
    ]
    assert places == sorted(places)


# The lecture


@pytest.fixture(scope="module")
def lecture(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    trace = load_trace(ROOT / TRACES / "lecture_07.json", ROOT)
    recording, _ = load_lecture_recording(ROOT / TRACES / "lecture_07_recording.json", ROOT)
    log = load_lecture_log(ROOT / TRACES / "lecture_07_stdout.txt", recording, trace)
    file = tmp_path_factory.mktemp("order") / "lecture_07.html"
    file.write_text(build_page("lecture_07", ROOT, trace, log, recording), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    yield page
    page.close()


def test_stepping_once_through_the_lecture_scrolls_back_at_most_five_times(lecture: Page) -> None:
    back = lecture.evaluate("""() => {
        const slider = document.querySelector('.controls input');
        let [back, former] = [0, scrollY];
        for (let step = 0; step < Number(slider.max); step++) {
            document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'l', bubbles: true}));
            if (former - scrollY > innerHeight) back++;
            former = scrollY;
        }
        if (slider.value !== slider.max) throw Error(`ended at ${slider.value}`);
        return back;
    }""")
    assert back <= 5


def test_the_pipeline_receives_and_its_stages_overlap(lecture: Page) -> None:
    """`recv` has a step for each micro-batch, and rank 0 is a micro-batch ahead of rank 1 at some of its steps."""
    source = (ROOT / "lecture_07.py").read_text(encoding="utf-8").split("\n")
    receive = next(number for number, line in enumerate(source, 1) if "dist.recv(x" in line)
    lines = lecture.evaluate("JSON.parse(document.querySelector('#trace').textContent).line")
    steps = [step for step, line in enumerate(lines) if line == receive]
    assert len(steps) == 4
    lecture.locator(".controls input").fill(str(steps[1]))
    heads = lecture.locator(".columns-of-ranks thead th").all_inner_texts()
    assert "rank 0" in heads[0] and "never executes this line" in heads[0] and heads[1] == "rank 1"
