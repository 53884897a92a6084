"""A reader's comfort: Play, jumps, ranks where there are any, outputs as a terminal shows them."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from trace_page.draw.terminal import terminal_text

pytest_plugins = ["page_fixtures"]

Open = Callable[..., Page]


def status(page: Page) -> str:
    return page.locator(".status").inner_text()


def step(page: Page) -> int:
    return int(re.search(r"Step (\d+) of", status(page))[1])


def test_play_steps_by_itself_and_stops_at_a_communication(open_page: Open) -> None:
    page = open_page("?source=exchange.py&line=43", name="exchange")
    page.locator("#pace").select_option("300")
    page.locator("body").focus()
    page.keyboard.press("Space")
    button = page.locator("[data-do=play]")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(button).to_have_attribute("aria-pressed", "false", timeout=10_000)
    assert "line 48" in status(page) and page.locator(".moved").count() == 1, "the all-reduce"


def test_any_other_move_ends_play(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Space")
    page.keyboard.press("l")
    assert page.locator("[data-do=play]").get_attribute("aria-pressed") == "false"


def test_c_goes_from_communication_to_communication(open_page: Open) -> None:
    page = open_page(name="exchange")
    lines = []
    for _ in range(4):
        page.keyboard.press("c")
        lines.append(page.locator(".current code.src").inner_text())
    for line, operation in zip(lines, ("all_reduce", "all_gather", "send", "recv"), strict=True):
        assert f"dist.{operation}(" in line
    page.keyboard.press("Shift+C")
    assert "dist.send(" in page.locator(".current code.src").inner_text()
    assert open_page().locator("[data-do=nextCommunication]").count() == 0, "without ranks there is none"


def test_s_goes_to_the_next_section(open_page: Open) -> None:
    page = open_page(name="calls")
    seen = []
    for _ in range(3):
        page.keyboard.press("s")
        seen.append(page.locator("nav [aria-current]").all_inner_texts()[-1])
    assert seen[0] == "Calls" or "First" in seen


@pytest.mark.parametrize(
    "wanted, told",
    [("12", "line 12"), ("step 3", "Step 3 of"), ("line 1", "Line 1 has no step, line")],
)
def test_g_goes_to_a_line_or_step(open_page: Open, wanted: str, told: str) -> None:
    page = open_page()
    page.keyboard.press("g")
    page.locator("#goto input").fill(wanted)
    page.keyboard.press("Enter")
    assert told in status(page)
    assert not page.locator("#goto").is_visible()


def test_what_g_does_not_understand_is_said(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("g")
    page.locator("#goto input").fill("step 999999")
    page.keyboard.press("Enter")
    assert "up to" in page.locator("#goto output").inner_text()
    page.keyboard.press("Escape")


def test_a_line_without_a_step_says_so_and_shows_the_nearest(open_page: Open) -> None:
    page = open_page("?source=lesson.py&line=6")
    assert re.match(r"Line 6 has no step, line \d+ has\. Step \d+ of", status(page))
    page.locator("span.no", has_text=re.compile("^1$")).evaluate("number => number.click()")
    assert status(page).startswith("Line 1 has no step")


def test_ranks_are_offered_where_the_program_has_them(open_page: Open) -> None:
    page = open_page(name="exchange")
    buttons = page.locator("[data-rank]:visible")
    assert buttons.count() == 0, "main has no ranks"
    page.keyboard.press("c")
    assert buttons.all_inner_texts() == ["all", "0", "1"]
    page.goto(page.url.split("?")[0] + "?source=exchange.py&line=72")
    assert buttons.count() == 0, "a program of one rank"


def test_the_panel_gives_its_room_back_where_it_has_nothing(open_page: Open) -> None:
    page = open_page(name="exchange")
    wide = page.locator("main").bounding_box()["width"]
    assert not page.locator("aside").is_visible()
    page.keyboard.press("c")
    expect(page.locator("aside")).to_be_visible()
    assert page.locator("main").bounding_box()["width"] < wide


@pytest.mark.parametrize("width", [1280, 390])
def test_the_heads_of_the_ranks_stay_in_sight(open_page: Open, width: int) -> None:
    page = open_page("?source=exchange.py&line=64", name="exchange", width=width, height=320)
    page.locator("aside").evaluate("panel => { panel.scrollTop = 150 }")
    assert page.locator("aside").evaluate("panel => panel.scrollTop") > 0
    head = page.locator(".columns-of-ranks thead th .mark").first
    assert head.evaluate(
        """head => {
            const box = head.getBoundingClientRect();
            return document.elementFromPoint(box.left + 5, box.top + box.height / 2) === head;
        }"""
    )


def test_the_contents_come_when_asked_for(open_page: Open) -> None:
    page = open_page("?step=20")
    entry = page.locator("nav a", has_text="Ranks").first
    page.keyboard.press("m")
    expect(entry).to_be_in_viewport()
    entry.click()
    assert page.evaluate("document.documentElement.hasAttribute('data-contents')") is False
    assert "Ranks" in page.locator("nav [aria-current]").inner_text()


def test_outputs_appear_as_they_are_printed(open_page: Open) -> None:
    page = open_page("?animate=1&source=exchange.py&line=57", name="exchange")
    turns = [text for text in page.locator(".output code:visible").all_inner_texts() if text.startswith("turn")]
    assert set(turns) == {"turn 0"}
    page.keyboard.press("a")
    turns = [text for text in page.locator(".output code:visible").all_inner_texts() if text.startswith("turn")]
    assert set(turns) == {"turn 0", "turn 1", "turn 2"}


def test_on_a_phone_buttons_have_names_and_four_elements_stay_in_a_row(open_page: Open) -> None:
    page = open_page("?source=exchange.py&line=48", name="exchange", width=390, height=844)
    assert page.locator("[data-do=next]").inner_text() == "Next"
    heights = page.locator(".columns-of-ranks .cells").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) < 30
    low = page.locator("aside").bounding_box()["height"]
    grip = page.locator(".grip").bounding_box()
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + 5)
    page.mouse.down()
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] - 200, steps=4)
    page.mouse.up()
    assert page.locator("aside").bounding_box()["height"] > low + 150


@pytest.mark.parametrize(
    "text, html",
    [
        ("\x1b[31mred\x1b[0m plain", '<span class="a1">red</span> plain'),
        ("\x1b[1;92mok\x1b[39m bold\x1b[22m", '<span class="a2 ab">ok</span><span class="ab"> bold</span>'),
        ("\x1b[38;5;196mbright\x1b[m", "bright"),
        ("10 %\r100 %", "100 %"),
        ("working\rdone", "doneing"),
        ("working\r\x1b[Kdone", "done"),
        ("\x1b]0;title\x07a < b", "a &lt; b"),
        ("one\ntwo", "one\ntwo"),
    ],
)
def test_an_output_is_what_a_terminal_would_show(text: str, html: str) -> None:
    assert terminal_text(text) == html


def test_narration_may_have_some_html(open_page: Open) -> None:
    page = open_page(name="calls")
    assert page.locator("main sub").first.inner_text() == "2"
