"""The page in a real browser: controls, keys, addresses, values, outputs, accessibility, print."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from pypdf import PdfReader

from trace_page.draw.page import TRACES, build_page, load_lecture_log, load_lecture_recording
from trace_page.read.trace import load_trace

pytest_plugins = ["page_fixtures"]

ROOT = Path(__file__).parent.parent

Open = Callable[..., Page]

KEYS = {
    "back": ["h", "ArrowLeft"],
    "next": ["l", "ArrowRight"],
    "overBack": ["k", "Shift+ArrowLeft"],
    "overNext": ["j", "Shift+ArrowRight"],
    "out": ["u"],
}
TOGGLES = [("animate", "a", "animate"), ("raw", "r", "raw"), ("values", "e", "hideEnv"), ("notes", "n", "showNotes")]


def step_of(page: Page) -> int:
    """The step that the page says it shows; the address must agree once there is one."""
    shown = int(re.match(r"Step (\d+) of", page.locator(".status").text_content())[1])
    assert page.locator(".controls input").input_value() == str(shown)
    return shown


def step_where(trace: dict, function: str, line_text: str = "") -> int:
    """The first step in a function at a line with this text."""
    return next(
        number
        for number, step in enumerate(trace["steps"])
        if step["stack"][-1]["function_name"] == function and line_text in step["stack"][-1]["code"]
    )


def line_of(lesson: Path, text: str) -> int:
    return next(n for n, line in enumerate((lesson / "lesson.py").read_text().split("\n"), 1) if text in line)


def press(page: Page, name: str) -> None:
    page.locator(f'[data-do="{name}"]').click()


def led_to(trace: dict, name: str, here: int) -> int:
    """Where a control leads, from the contract; the same step when it leads nowhere."""
    depths = [len(step["stack"]) for step in trace["steps"]]
    after, before = range(here + 1, len(depths)), range(here - 1, -1, -1)
    candidates = {
        "back": before,
        "next": after,
        "overBack": (step for step in before if depths[step] <= depths[here]),
        "overNext": (step for step in after if depths[step] <= depths[here]),
        "out": (step for step in after if depths[step] < depths[here]),
    }
    return next(iter(candidates[name]), here)


# Controls


@pytest.mark.parametrize("name", KEYS)
def test_a_step_control_and_its_keys_lead_where_they_should(open_page: Open, trace: dict, name: str) -> None:
    page = open_page()
    last = len(trace["steps"]) - 1
    inside, call = step_where(trace, "shard_sum", "total = total"), step_where(trace, "second_section", "spawn(shard")
    for start in (0, call, inside, last):
        for action in [None, *KEYS[name]]:
            page.locator(".controls input").fill(str(start))
            target = led_to(trace, name, start)
            disabled = page.locator(f'[data-do="{name}"]').get_attribute("aria-disabled")
            assert disabled == ("true" if target == start else "false")
            if action:
                page.keyboard.press(action)
            elif target != start:
                press(page, name)
            assert step_of(page) == target, (start, action)


@pytest.mark.parametrize("name, key, parameter", TOGGLES)
def test_a_view_can_be_switched_by_button_key_and_address(open_page: Open, name: str, key: str, parameter: str) -> None:
    page = open_page("?step=3")
    button = page.locator(f'[data-do="{name}"]')
    default = button.get_attribute("aria-pressed")
    assert default == ("true" if name == "values" else "false")
    for action in (button.click, lambda: page.keyboard.press(key), lambda: page.keyboard.press(key.upper())):
        before = button.get_attribute("aria-pressed")
        action()
        assert button.get_attribute("aria-pressed") != before
        assert (f"{parameter}=1" in page.url) == (button.get_attribute("aria-pressed") != default)
    assert f"{parameter}=1" in page.url and "step=3" in page.url
    page.reload()
    assert button.get_attribute("aria-pressed") != default
    assert step_of(page) == 3


def test_controls_are_named_buttons_with_their_key_in_the_tooltip(open_page: Open) -> None:
    for button in open_page().locator(".controls button").all():
        assert button.get_attribute("aria-label")
        assert re.search(r"\(.+\)$", button.get_attribute("title"))


def test_the_progress_bar_can_be_dragged(open_page: Open, trace: dict) -> None:
    page = open_page()
    box = page.locator(".controls input").bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=10)
    page.mouse.up()
    assert abs(step_of(page) - (len(trace["steps"]) - 1) / 2) <= 2
    dragged = step_of(page)
    page.wait_for_url(f"**step={dragged}")
    page.go_back()
    assert step_of(page) == 0, "a drag is one entry of the history"


def test_help_opens_and_closes_with_the_keyboard(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("l")
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    assert step_of(page) == 0, "keys do nothing behind the help"


def test_keys_with_ctrl_stay_the_browsers(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Control+l")
    page.keyboard.press("Alt+ArrowRight")
    assert step_of(page) == 0


# Addresses


def test_the_back_and_forward_buttons_go_through_the_steps(open_page: Open) -> None:
    page = open_page()
    for _ in range(3):
        page.keyboard.press("l")
    press(page, "next")
    assert page.url.endswith("?step=4")
    page.go_back()
    assert step_of(page) == 3
    page.go_back()
    page.go_back()
    page.go_back()
    assert step_of(page) == 0
    page.go_forward()
    assert step_of(page) == 1


def test_a_held_key_is_one_entry_of_the_history(open_page: Open) -> None:
    page = open_page()
    page.keyboard.down("l")
    for _ in range(30):
        page.keyboard.down("l")
    page.keyboard.up("l")
    assert step_of(page) == 31
    page.wait_for_url("**step=31")
    page.go_back()
    assert step_of(page) == 0


@pytest.mark.parametrize(
    "query, step", [("?step=17", 17), ("?step=100000", -1), ("?step=-3", 0), ("?step=x", 0), ("", 0)]
)
def test_an_address_opens_at_its_step(open_page: Open, trace: dict, query: str, step: int) -> None:
    assert step_of(open_page(query)) == (step if step >= 0 else len(trace["steps"]) - 1)


def test_an_address_of_a_source_line_opens_at_a_step_there(open_page: Open, trace: dict, lesson: Path) -> None:
    line = line_of(lesson, "total = total")
    page = open_page(f"?source=lesson.py&line={line}")
    assert step_of(page) == step_where(trace, "shard_sum", "total = total")
    assert in_view(page)
    page.keyboard.press("l")
    assert "source" not in page.url and "line" not in page.url


def test_a_click_on_a_line_number_goes_to_the_nearest_step_there(open_page: Open, trace: dict, lesson: Path) -> None:
    line = line_of(lesson, "total = total")
    there = [n for n, step in enumerate(trace["steps"]) if step["stack"][-1]["line_number"] == line]
    assert len(there) > 2
    for start in (0, there[1] + 1, len(trace["steps"]) - 1):
        page = open_page(f"?step={start}")
        page.locator(f"#L{line} .no").click()
        assert step_of(page) in there
        assert abs(step_of(page) - start) == min(abs(step - start) for step in there)
        page.close()


def test_line_numbers_can_be_reached_with_the_keyboard(open_page: Open, trace: dict) -> None:
    start = step_where(trace, "second_section", "## Ranks")
    page = open_page(f"?step={start}")
    page.locator(".current .no:visible").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert step_of(page) == step_where(trace, "second_section", "spawn(shard")
    assert page.locator('a.no[tabindex="0"]:visible').count() == 1


# Narration and code


def test_narration_stands_in_place_of_its_line_and_raw_shows_the_line(open_page: Open, lesson: Path) -> None:
    page = open_page()
    row = page.locator(f"#L{line_of(lesson, 'Everything that')}")
    assert row.locator("math").count() == 1
    assert row.locator("strong").inner_text() == "bold"
    assert "text(" not in row.inner_text()
    page.keyboard.press("r")
    assert 'text("Everything' in row.inner_text()
    assert not row.locator("math").is_visible()


def test_a_statement_over_several_lines_is_one_row(open_page: Open, lesson: Path) -> None:
    page = open_page()
    line = line_of(lesson, '        "Spread over "') - 1
    row = page.locator(f"#L{line}")
    assert row.inner_text().split("\n")[-1] == "Spread over lines"
    page.keyboard.press("r")
    assert re.findall(r"^\d+$", row.inner_text(), re.M) == [str(line + n) for n in range(4)]


def test_directives_and_hidden_lines_do_not_show(open_page: Open) -> None:
    page = open_page("?raw=1&showNotes=1")
    shown = page.locator("main").inner_text()
    assert not re.search("@(inspect|clear|hide|animate|stepover)", shown)
    assert "# a running sum" in shown
    assert "secret" not in shown


def test_the_current_line_is_marked_and_in_view_at_every_step(open_page: Open, trace: dict) -> None:
    for options in ({}, {"width": 390, "height": 844}):
        page = open_page(**options)
        for number, step in enumerate(trace["steps"]):
            frame = step["stack"][-1]
            told, marked, seen = page.evaluate(f"[{STATUS}, {MARKED}, ({IN_VIEW})()]")
            assert told.startswith(f"Step {number} of ")
            assert f"line {frame['line_number']}, {frame['function_name']}" in told
            assert seen, number
            assert str(frame["line_number"]) in marked or "@hide" in frame["code"]
            page.keyboard.press("l")


STATUS = "document.querySelector('.status').textContent"
MARKED = "[...document.querySelectorAll('.current .no')].map(number => number.textContent)"
IN_VIEW = """() => [...document.querySelectorAll('.current')].some(marked => {
    const box = marked.getBoundingClientRect();
    const hit = document.elementFromPoint(box.left + 60, box.top + Math.min(box.height / 2, 100));
    return !!hit?.closest('.current');
})"""


def in_view(page: Page) -> bool:
    """Whether the top of the current row, or the end of the call that it comes back from, is seen."""
    return page.evaluate(IN_VIEW)


def test_a_call_leads_to_the_function_and_back(open_page: Open, trace: dict, lesson: Path) -> None:
    page = open_page()
    call, definition = line_of(lesson, "spawn(shard_sum"), line_of(lesson, "def shard_sum")
    page.locator(f"#L{call} .src a", has_text="shard_sum").click()
    assert step_of(page) == step_where(trace, "shard_sum")
    page.locator(f"#L{definition} .callers a", has_text=str(call)).click()
    assert trace["steps"][step_of(page)]["stack"][-1]["line_number"] == call


def test_the_contents_lead_to_sections_and_programs(open_page: Open, trace: dict) -> None:
    page = open_page()
    entries = page.locator("nav li > a").all_inner_texts()
    assert entries == ["A small lesson", "Narration", "Ranks", "shard_sum", "shapes", "Summary", "The rest of the log"]
    page.locator("nav a", has_text="Ranks").click()
    assert step_of(page) == step_where(trace, "second_section")


def test_a_place_without_a_step_can_be_jumped_to(open_page: Open) -> None:
    page = open_page("?step=20", height=500)
    page.locator("nav a", has_text="The rest of the log").click()
    page.wait_for_url("**#rest")
    page.wait_for_function("document.querySelector('#rest').getBoundingClientRect().top < innerHeight")
    assert step_of(page) == 20
    page.keyboard.press("l")
    assert in_view(page) and page.url.endswith("?step=21")


def test_links_lead_where_they_say(open_page: Open, lesson: Path) -> None:
    page = open_page()
    read = "links => links.map(link => [link.textContent, link.getAttribute('href')])"
    links = dict(page.locator("main a").evaluate_all(read))
    assert links["the log"] == "lesson_stdout.txt"
    assert links["lesson.py"] == "../../lesson.py"
    assert links["spawn"] == "../../lesson_util.py"
    assert links["A paper"] == "https://example.org/p"
    assert links["[article]"] == "https://example.org/article"
    assert "Ada Lovelace, Alan Turing, 1950-10-01" in page.locator("main").inner_text()
    assert not [href for href in links.values() if "javascript" in href]
    for name in ("lesson_stdout.txt", "../../lesson.py", "../../lesson_util.py"):
        assert (lesson / "var/traces" / name).is_file()


def test_pictures_are_in_the_page_with_their_description(open_page: Open) -> None:
    picture = open_page().get_by_role("img", name="Four ranks in a row")
    assert picture.evaluate("image => image.naturalWidth") == 400
    assert picture.bounding_box()["width"] == 200


def test_plots_and_graphs_show_their_data(open_page: Open) -> None:
    shown = open_page().locator("main").inner_text()
    assert '"time": 2.5' in shown
    assert "a → Bee: sends" in shown


def test_nothing_in_trace_or_log_is_markup(open_page: Open) -> None:
    page = open_page()
    assert page.title() == "A small lesson"
    assert page.locator("main script").count() == 0
    assert "<script>alert('narration')</script>" in page.locator("main").inner_text()
    assert "Rank 3 says <script>document.title = 'owned'</script>" in page.locator("main").inner_text()


# Animation


def test_animate_shows_content_only_as_it_is_reached(open_page: Open, trace: dict, lesson: Path) -> None:
    page = open_page("?animate=1")
    for number in (0, step_where(trace, "first_section", "the log"), step_where(trace, "shard_sum", "[before]")):
        page.goto(page.url.split("?")[0] + f"?animate=1&step={number}")
        reached = {step["stack"][-1]["line_number"] for step in trace["steps"][: number + 1]}
        later = {step["stack"][-1]["line_number"] for step in trace["steps"]} - reached
        visible = {int(text) for text in page.locator(".no:visible").all_inner_texts()}
        notes = {n for n, step in enumerate(trace["steps"]) if any(r["type"] == "note" for r in step["renderings"])}
        hidden = {trace["steps"][n]["stack"][-1]["line_number"] for n in notes}
        hidden |= set(trace["hidden_line_numbers"]["lesson.py"])
        start = line_of(lesson, '"Spread over')
        inner = {start, start + 1, start + 2}  # Of the statement over several lines
        assert not visible & later
        assert reached - hidden - inner <= visible
        inside = trace["steps"][number]["stack"][-1]["function_name"] == "shard_sum"
        assert page.locator(".output:visible").count() == int(inside)
    page.keyboard.press("a")
    assert "That was all." in page.locator("main").inner_text()


def test_renderings_under_animate_appear_one_at_a_time(open_page: Open, trace: dict) -> None:
    start = step_where(trace, "first_section", "One")
    page = open_page(f"?animate=1&step={start - 1}")
    seen = []
    for key in "lllhhl":
        page.keyboard.press(key)
        shown = [word for word in ("One", "Two", "Three") if page.get_by_text(word, exact=True).is_visible()]
        seen.append((step_of(page) - start, len(shown)))
    assert seen == [(0, 1), (0, 2), (0, 3), (0, 2), (0, 1), (0, 2)]


def test_notes_show_only_on_demand(open_page: Open) -> None:
    page = open_page()
    note = page.locator(".note")
    assert not note.is_visible()
    page.keyboard.press("n")
    assert note.is_visible() and "audience" in note.inner_text()


# Values


def test_the_panel_shows_what_the_current_call_inspected(open_page: Open, trace: dict) -> None:
    """At every step, the names and the whole numbers among the values, against a plain reading of the trace."""
    page = open_page()
    seen: dict[tuple, dict] = {}
    for number, step in enumerate(trace["steps"]):
        env = seen.setdefault(tuple((frame["path"], frame["line_number"]) for frame in step["stack"][:-1]), {})
        env.update(step["env"])
        page.locator(".controls input").fill(str(number))
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shown = {value.split("\n")[0]: value for value in page.locator(".value").all_inner_texts()}
        assert set(shown) == {name for name, value in env.items() if value is not None}
        for name, value in env.items():
            if value and value["type"] == "int":
                assert shown[name].split("\n")[-1] == str(value["contents"])
        fresh = page.locator(".value.fresh b").all_inner_texts()
        assert set(fresh) == {name for name, value in step["env"].items() if value is not None}


def value(page: Page, name: str) -> str:
    return page.locator(".value", has=page.locator("b", has_text=re.compile(f"^{re.escape(name)}$"))).inner_text()


def test_values_read_well(open_page: Open, trace: dict) -> None:
    page = open_page(f"?step={step_where(trace, 'shard_sum', 'names =') - 1}")
    assert value(page, "data").split() == ["data", "int64,", "shape", "8", *"01234567"]
    page = open_page(f"?step={step_where(trace, 'shapes', '[0]')}")
    assert "float32, shape 40 × 50" in value(page, "matrix")
    assert value(page, "matrix").count("nan") == 36 and "⋮" in value(page, "matrix")
    assert value(page, "cube").count("0.") == 12 and "[1, :, :]" in value(page, "cube")
    assert "1.5000" in value(page, "table") and "None" in value(page, "table") and '"three"' in value(page, "table")


def test_the_panel_is_beside_the_code_or_below_it(open_page: Open, trace: dict) -> None:
    query = f"?step={step_where(trace, 'shapes', '[0]')}"
    page = open_page(query)
    main, panel = page.locator("main").bounding_box(), page.locator("aside").bounding_box()
    assert panel["x"] >= main["x"] + main["width"]
    page = open_page(query, width=390, height=844)
    panel = page.locator("aside").bounding_box()
    assert panel["y"] > 844 / 2 and panel["y"] + panel["height"] <= 845
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = page.locator("main .verbatim").last.bounding_box()
    assert last["y"] + last["height"] <= panel["y"], "the end of the page can be scrolled above the panel"


# Outputs


def test_outputs_stand_under_their_print_one_row_a_rank(open_page: Open, lesson: Path) -> None:
    page = open_page()
    log = (lesson / "var/traces/lesson_stdout.txt").read_text().split("\n")
    output = page.locator(f"#L{line_of(lesson, '[before]')} + .output")
    assert output.locator(".name").all_inner_texts() == [f"rank {rank}" for rank in range(4)]
    assert output.locator("code").all_inner_texts() == [line for line in log if "[before]" in line]
    matrix = page.locator(f"#L{line_of(lesson, '[0]')} + .output code").all_inner_texts()
    assert matrix == [f"Rank {rank} matrix: tensor([[0., 0., 0.],\n        [0., 0., 0.]])" for rank in range(2)]
    assert page.locator("#rest pre").inner_text() == "a line of no print"
    colours = [row.evaluate("row => getComputedStyle(row).borderLeftColor") for row in output.locator(".rank").all()]
    assert colours == ["rgb(0, 114, 178)", "rgb(230, 159, 0)", "rgb(0, 158, 115)", "rgb(204, 121, 167)"]


def test_the_page_says_what_the_log_was_recorded_on(open_page: Open) -> None:
    assert "gloo on CPUs, world size 4, lines of ranks 0 to 3" in open_page().locator(".about").inner_text()


def test_outputs_can_be_folded_one_by_one_and_all(open_page: Open) -> None:
    page = open_page()
    rows, summary = page.locator(".rank:visible"), page.locator(".output summary").first
    count = rows.count()
    summary.click()
    assert rows.count() == count - 4
    for action in (lambda: press(page, "outputs"), lambda: page.keyboard.press("o")):
        action()
        assert rows.count() in (0, count)
    assert rows.count() == count


# Everywhere


def test_without_script_everything_can_be_read(browser: object, lesson: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((lesson / "var/traces/lesson.html").as_uri())
    shown = page.locator("body").inner_text()
    texts = ("A small lesson", "That was all.", "audience", "Rank 2 [before]", "a line of no print")
    assert [text for text in texts if text not in shown] == []
    assert not page.locator(".controls").is_visible() and not page.locator("aside").is_visible()
    page.locator(".preamble summary").click()
    assert "import torch" in page.locator(".preamble").inner_text()
    page.locator("nav a", has_text="Ranks").click()
    assert "second_section" in page.locator(".row:target").inner_text()
    context.close()


@pytest.mark.parametrize("query", ["", "?raw=1&showNotes=1", "?hideEnv=1", "?step=-1"])
def test_a_narrow_page_never_scrolls_sideways(open_page: Open, query: str) -> None:
    page = open_page(query, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth")


def test_a_page_as_small_as_at_400_percent_still_shows_the_current_line(open_page: Open) -> None:
    page = open_page(width=320, height=256)
    for _ in range(12):
        page.keyboard.press("l")
        assert in_view(page)


def test_the_theme_follows_the_system_and_can_be_switched(open_page: Open) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(253, 252, 250)", "rgb(22, 24, 28)"
    page = open_page(color_scheme="dark")
    seen = [page.evaluate(paper)]
    for _ in range(3):
        press(page, "theme")
        seen.append(page.evaluate(paper))
    assert seen == [dark, light, dark, dark]
    assert open_page(color_scheme="light").evaluate(paper) == light


def test_on_paper_there_is_the_lecture_and_nothing_else(open_page: Open) -> None:
    page = open_page("?animate=1", color_scheme="dark")
    press(page, "outputs")
    text = "".join(part.extract_text() for part in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages)
    text = re.sub(r"\s+", "", text)
    for expected in ("A small lesson", "That was all.", "Rank 2 [before]", "a line of no print", "audience"):
        assert expected.replace(" ", "") in text, expected
    assert "Step0of" not in text and "Nothinginspected" not in text
    assert "importtorch" not in text, "what is folded, but for outputs, stays so"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(open_page: Open, trace: dict, width: int, scheme: str) -> None:
    for query in (f"?showNotes=1&step={step_where(trace, 'shapes', '[0]')}", "?raw=1&step=20"):
        page = open_page(query, width=width, height=844, color_scheme=scheme)
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
    page.keyboard.press("?")
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()


def test_the_bar_takes_its_room_before_the_first_paint(open_page: Open) -> None:
    """What needs script is there from the start, and a page that is read moves nothing when the script starts."""
    page = open_page()
    shift = page.evaluate(
        """() => new Promise(done => new PerformanceObserver(list => done(list.getEntries().map(e => e.value)))
            .observe({type: 'layout-shift', buffered: true}) || setTimeout(() => done([]), 300))"""
    )
    assert sum(shift) < 0.1


def test_the_policy_lets_nothing_in(open_page: Open) -> None:
    policy = open_page().locator('meta[http-equiv="Content-Security-Policy"]').get_attribute("content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert not re.search("unsafe|http|\\*", policy)


# The lecture's own page


@pytest.fixture(scope="session")
def lecture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of lecture_07, built anew from the trace, the log and the recording in the repository."""
    trace = load_trace(ROOT / TRACES / "lecture_07.json", ROOT)
    recording, _ = load_lecture_recording(ROOT / TRACES / "lecture_07_recording.json", ROOT)
    log = load_lecture_log(ROOT / TRACES / "lecture_07_stdout.txt", recording, trace)
    assert log.other == [], "every line of the log belongs to a print"
    page = tmp_path_factory.mktemp("lecture") / "lecture_07.html"
    page.write_text(build_page("lecture_07", ROOT, trace, log, recording), encoding="utf-8")
    return page


def test_the_lectures_page_is_small_enough_and_complete(lecture: Path) -> None:
    page = lecture.read_text(encoding="utf-8")
    assert len(page.encode()) <= 1_200_000
    assert "cannot be shown" not in page and "not shown here" not in page and "not drawn here" not in page
    assert "The log has no line of this print" not in page
    assert all(alt for alt in re.findall('<img [^>]*alt="([^"]*)"', page))


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_axe_finds_no_violation_in_the_lectures_page(browser: object, lecture: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(lecture.as_uri() + "?step=200&showNotes=1")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    result = Axe().run(page)
    page.close()
    assert result.violations_count == 0, result.generate_report()


def test_animate_shows_what_the_lecture_steps_over_when_it_is_called(browser: object, lecture: Path) -> None:
    source = (ROOT / "lecture_07.py").read_text(encoding="utf-8").split("\n")
    steps = load_trace(ROOT / TRACES / "lecture_07.json", ROOT).steps

    def line(text: str) -> int:
        return next(number for number, code in enumerate(source, 1) if code.startswith(text))

    def first(text: str) -> int:
        return next(number for number, step in enumerate(steps) if text in source[step.here.line - 1])

    appears = {
        "def setup": first("    setup(rank"),
        "def int_divide": first("int_divide("),
        "# Helpers": first("    setup(rank"),
        "if __name__": len(steps) - 1,
        "import math": 0,
    }
    page = browser.new_page()
    for text, step in appears.items():
        for at, shown in ((step - 1, False), (step, True)):
            if at >= 0:
                page.goto(f"{lecture.as_uri()}?animate=1&step={at}")
                hidden = page.locator(f"#L{line(text)}").evaluate("row => row.classList.contains('future')")
                assert hidden != shown, (text, at)
    page.close()


def test_the_contents_mark_where_the_reader_is_and_fold_on_a_narrow_page(browser: object, lecture: Path) -> None:
    page = browser.new_page()
    for query, title in (("", []), ("?step=1", ["Parallelism across GPUs"]), ("?step=100000", ["Summary"])):
        page.goto(lecture.as_uri() + query)
        assert page.locator("nav [aria-current]").all_inner_texts() == title
    page.keyboard.press("k")
    page.locator("nav a", has_text="all_reduce").first.click()
    page.keyboard.press("l")
    assert page.locator("nav [aria-current]").all_inner_texts() == ["all_reduce"]
    page.close()
    narrow = browser.new_page(viewport={"width": 390, "height": 844})
    narrow.goto(lecture.as_uri())
    assert narrow.locator("nav a", has_text="Summary").is_hidden()
    narrow.locator("nav summary").click()
    narrow.locator("nav a", has_text="Summary").click()
    assert narrow.locator(".current").is_visible()
    narrow.close()
