"""Building the page: what goes in, what comes out, and what is refused."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import page_browser
import pytest

from trace_page.draw.narration import Renderer
from trace_page.draw.page import write_page
from trace_page.draw.steps import step_table
from trace_page.read.course import join
from trace_page.read.log import load_log, recorded_log
from trace_page.read.source import code_lines
from trace_page.read.trace import Frame, Rendering, Step, Trace, load_trace
from trace_page.record.recording import ParentPrint, Recording

pytest_plugins = ["page_fixtures"]


@pytest.fixture
def copy(lesson: Path, tmp_path: Path) -> Path:
    """The lesson's directory, to be spoilt."""
    return Path(shutil.copytree(lesson, tmp_path / "copy"))


def traced(copy: Path) -> Path:
    return copy / "var/traces/lesson.json"


def logged(copy: Path) -> Path:
    return copy / "var/traces/lesson_stdout.txt"


# Wrong input


def no_trace(copy: Path) -> None:
    traced(copy).unlink()


def not_json(copy: Path) -> None:
    traced(copy).write_text("{")


def not_a_trace(copy: Path) -> None:
    traced(copy).write_text('{"files": {}, "steps": []}')


def step_without_stack(copy: Path) -> None:
    data = json.loads(traced(copy).read_text())
    del data["steps"][3]["stack"]
    traced(copy).write_text(json.dumps(data))


def step_off_the_file(copy: Path) -> None:
    data = json.loads(traced(copy).read_text())
    data["steps"][3]["stack"][-1]["line_number"] = 1000
    traced(copy).write_text(json.dumps(data))


def number_without_end(copy: Path) -> None:
    traced(copy).write_text(f'{{"files": {"1" * 5000}}}')


def recording_of(copy: Path, content: bytes) -> None:
    (copy / "var/traces/lesson_recording.json").write_bytes(content)


def changed_source(copy: Path) -> None:
    source = copy / "lesson.py"
    source.write_text(source.read_text().replace("## Ranks", "## Rank"))


def shorter_source(copy: Path) -> None:
    source = copy / "lesson.py"
    source.write_text("\n".join(source.read_text().split("\n")[:20]))


def no_source(copy: Path) -> None:
    (copy / "lesson.py").unlink()


def log_of_another_program(copy: Path) -> None:
    logged(copy).write_text("hello\nworld\n")


def empty_log(copy: Path) -> None:
    logged(copy).write_text("")


@pytest.mark.parametrize(
    "spoil, told",
    [
        (no_trace, "no trace .*lesson.json"),
        (not_json, "lesson.json is not JSON"),
        (number_without_end, "lesson.json is not JSON"),
        (lambda copy: recording_of(copy, b"\xff\xfe{}"), "lesson_recording.json is not JSON"),
        (
            lambda copy: recording_of(copy, b"[" * 100_000),
            "lesson_recording.json: recording should be an object",
        ),
        (not_a_trace, "lesson.json is not a trace.*has no entry 'hidden_line_numbers'|has no steps"),
        (step_without_stack, r"steps\[3\] has no entry 'stack'"),
        (step_off_the_file, r"steps\[3\] is at lesson.py:1000"),
        (changed_source, "lesson.py has changed .* line 45"),
        (shorter_source, "lesson.py has changed .* line 21"),
        (no_source, "cannot read lesson.py"),
        (log_of_another_program, "no line of .*lesson_stdout.txt"),
        (empty_log, "no line of .*lesson_stdout.txt"),
    ],
)
def test_wrong_input_is_one_clear_line_and_leaves_the_page(
    copy: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, spoil: object, told: str
) -> None:
    from trace_page.__main__ import main

    page = copy / "var/traces/lesson.html"
    before = page.read_bytes()
    spoil(copy)
    monkeypatch.chdir(copy)
    assert main(["lesson", "--no-record"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(told, error), error
    assert page.read_bytes() == before
    assert sorted(file.name for file in page.parent.glob("*.tmp")) == []


def test_the_command_exits_with_2(copy: Path) -> None:
    command = [sys.executable, "-m", "trace_page", "no_lesson"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and "no_lesson.json" in result.stderr


def test_an_interrupted_write_leaves_the_page(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = copy / "var/traces/lesson.html"
    before = page.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("trace_page.draw.page.os.replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_page(copy, "lesson")
    assert page.read_bytes() == before
    assert not list(page.parent.glob("*.tmp"))


def test_the_same_inputs_give_the_same_bytes(copy: Path) -> None:
    page = copy / "var/traces/lesson.html"
    before = page.read_bytes()
    page.unlink()
    write_page(copy, "lesson")
    assert page.read_bytes() == before


def test_a_trace_without_a_log_gives_a_page_that_says_so(copy: Path) -> None:
    logged(copy).unlink()
    assert "no outputs" in write_page(copy, "lesson")
    assert "show no outputs" in (copy / "var/traces/lesson.html").read_text()


def test_what_is_missing_says_so_in_its_place(copy: Path) -> None:
    (copy / "picture.png").unlink()
    (copy / "clip.mp4").write_bytes(bytes(2_000_000))
    write_page(copy, "lesson")
    page = (copy / "var/traces/lesson.html").read_text()
    assert "The picture picture.png cannot be shown: No such file" in page
    assert 'The video is not in the page (2.0 MB): <a href="../../clip.mp4">' in page


def test_half_a_character_and_an_odd_graph_are_shown_as_far_as_they_go(copy: Path) -> None:
    data = json.loads(traced(copy).read_text())
    graph = {"nodes": [{"data": {"id": [1], "label": "\ud800"}}, {"data": []}], "edges": [{"data": {"source": [1]}}]}
    data["steps"][3]["renderings"] = [{"type": "graph", "data": graph, "style": {}, "animate": False}]
    traced(copy).write_text(json.dumps(data))
    write_page(copy, "lesson")
    page = (copy / "var/traces/lesson.html").read_text(encoding="utf-8")
    assert "\\ud800 → None" in page


def test_a_trace_of_several_files_shows_them_all(copy: Path) -> None:
    data = json.loads(traced(copy).read_text())
    data["files"]["lesson_util.py"] = (copy / "lesson_util.py").read_text()
    data["hidden_line_numbers"]["lesson_util.py"] = []
    traced(copy).write_text(json.dumps(data))
    write_page(copy, "lesson")
    page = (copy / "var/traces/lesson.html").read_text()
    assert re.search(r'<a href="#F1L7"[^>]*>spawn</a>\(', page), "a call leads to the other file"
    assert 'id="F1L7"' in page


def test_nan_in_a_tensor_is_text_in_the_page(lesson: Path) -> None:
    assert "NaN" in traced(lesson).read_text()
    page = (lesson / "var/traces/lesson.html").read_text()
    table = re.search(r'id="trace">(.*?)</script>', page)[1]
    assert "NaN" not in table and '"nan"' in table


# The log

PROGRAM = """
def program(rank, loss, tensor):
    print(f"Rank {rank} before: {tensor}")
    print(f"Rank {rank} before: {tensor}, again")
    print(f"loss = {loss:.3f}" " on", rank)
    print("plain")
    print(tensor)
    print(f"to stderr {rank}", file=sys.stderr)
    print("plain")
    print(f"two\\n{rank}\\n", end="")
"""


def test_each_line_of_the_log_goes_to_the_print_that_wrote_it(tmp_path: Path) -> None:
    lines = [
        "Rank 1 before: tensor([[1, 2],\n        [3, 4]])",
        "Rank 0 before: 5",
        "Rank 0 before: 5, again",
        "loss = 0.125 on 3",
        "Rank x before: 5",
        "plain",
        "to stderr 0",
        "two\n12",
        "<script>",
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    log = load_log(tmp_path / "log.txt", {"program.py": PROGRAM})
    outputs = {line: [(out.rank, out.text) for out in found] for (_, line), found in log.outputs.items()}
    assert outputs == {
        3: [(1, lines[0]), (0, lines[1])],
        4: [(0, lines[2])],
        5: [(3, lines[3])],
        6: [(None, "plain")],
        10: [(12, lines[7])],
    }
    assert log.alike == {("program.py", 9): ("program.py", 6)}
    assert log.other == ["Rank x before: 5", "to stderr 0", "<script>"]


def test_a_line_that_holds_other_separators_is_one_line(tmp_path: Path) -> None:
    lines = ["50 %\r100 %", "form\ffeed", "next\x85line", "line\u2028separator", ""]
    (tmp_path / "log.txt").write_bytes("".join(f"{line}\n" for line in lines).encode())
    prints = [ParentPrint(path="lesson.py", line=3, call=0, text=line) for line in lines]
    recording = Recording(module="lesson", files={}, environment={}, calls=[], prints=prints)
    log = recorded_log(tmp_path / "log.txt", recording, {"lesson.py": "\n\nprint()\n"})
    assert [output.text for output in log.outputs["lesson.py", 3]] == lines
    assert log.other == []


def test_no_line_of_the_log_is_lost(lesson: Path) -> None:
    page = (lesson / "var/traces/lesson.html").read_text()
    for line in logged(lesson).read_text().split("\n"):
        assert line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;") in page


def test_a_long_line_that_almost_matches_takes_no_time(tmp_path: Path) -> None:
    fields = "".join(f"{{x{index}}}a" for index in range(12))
    (tmp_path / "log.txt").write_text("b" + "a" * 100_000 + "!\nbaaaaaaaaaaaaaaaaaaaaaaaac\n")
    log = load_log(tmp_path / "log.txt", {"program.py": f'print(f"b{fields}c")'})
    assert len(log.other) == 1


# Steps, against a plain reading of the contract


def nested_steps(seed: int) -> Trace:
    """A random walk in and out of calls that sets and clears values."""
    draw = random.Random(seed)
    stack = [Frame("a.py", 1, "main")]
    steps = []
    for _ in range(200):
        move = draw.choice(["deeper", "up", "along", "along"])
        if move == "deeper" and len(stack) < 5:
            stack = [*stack, Frame("a.py", draw.randint(1, 3), "f")]
        elif move == "up" and len(stack) > 1:
            stack = stack[:-1]
        stack = [*stack[:-1], Frame("a.py", draw.randint(1, 3), stack[-1].function)]
        names = draw.sample("xyz", draw.randint(0, 2))
        env = {name: draw.choice([None, {"type": "int", "contents": draw.randint(0, 3)}]) for name in names}
        steps.append(Step(tuple(stack), env, ()))
    return Trace({"a.py": "\n\n\n"}, {"a.py": frozenset()}, tuple(steps))


@pytest.mark.parametrize("seed", range(5))
def test_step_over_and_out_lead_where_a_debugger_does(seed: int) -> None:
    trace = nested_steps(seed)
    table = step_table(join(trace, None), {"a.py": {}})
    depths = [len(step.stack) for step in trace.steps]
    for here, depth in enumerate(depths):
        after, before = range(here + 1, len(depths)), range(here - 1, -1, -1)
        assert table["overNext"][here] == next((step for step in after if depths[step] <= depth), -1)
        assert table["overBack"][here] == next((step for step in before if depths[step] <= depth), -1)
        assert table["out"][here] == next((step for step in after if depths[step] < depth), -1)


@pytest.mark.parametrize("seed", range(5))
def test_values_of_a_call_stay_until_cleared(seed: int) -> None:
    trace = nested_steps(seed)
    table = step_table(join(trace, None), {"a.py": {}})
    seen: dict[tuple, dict] = {}
    for number, step in enumerate(trace.steps):
        env = seen.setdefault(tuple((frame.path, frame.line) for frame in step.stack[:-1]), {})
        env.update(step.env)
        shown = {}
        for name, (at, what) in table["calls"][table["call"][number]]["values"].items():
            index = [value for step_at, value in zip(at, what, strict=True) if step_at <= number][-1:]
            if index and index[0] >= 0:
                shown[name] = table["values"][index[0]]["c"]
        assert shown == {name: value["contents"] for name, value in env.items() if value is not None}


# Rendering


def renderer() -> Renderer:
    return Renderer(Path("."), "var/traces", lambda path, line: None)


@pytest.mark.parametrize(
    "url, address",
    [
        ("https://example.org/a?b#c", "https://example.org/a?b#c"),
        ("var/traces/log.txt", "log.txt"),
        ("lecture_07.py", "../../lecture_07.py"),
        ("#L7", "#L7"),
        ("javascript:alert(1)", None),
        (" javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("//example.org", None),
        ("/etc/passwd", None),
        ("http://[", None),
    ],
)
def test_links_lead_from_where_the_page_lies_or_nowhere(url: str, address: str | None) -> None:
    assert renderer().address(url) == address


def markdown(text: str) -> Rendering:
    return Rendering("markdown", text, {}, None, None, False)


def test_headings_never_skip_a_level() -> None:
    made = renderer()
    levels = [made.markdown(source)[2] for source in ("### Deep", "# Top", "##### Deeper", "## Less")]
    assert levels == ["2", "2", "3", "3"]


def test_amounts_of_money_are_no_math() -> None:
    assert "<math" not in renderer().markdown("It costs $5 and then $6.")
    assert "<math" in renderer().markdown("It costs $n$ all-reduces.")


def test_bad_math_shows_its_source() -> None:
    assert "\\frac{" in renderer().markdown("$\\frac{$")


def test_styles_become_classes_and_only_plain_ones() -> None:
    made = renderer()
    style = {"width": 300, "fontWeight": 700, "background": "url(https://x)", "color": "red;}body{color:red", "x-y": 1}
    made.render([Rendering("markdown", "x", style, None, None, False)], joined=False)
    assert list(made.styles) == ["width:300px;font-weight:700"]


def test_directives_are_stripped_from_comments_alone() -> None:
    source = "x = '# @inspect y'  # why @inspect x @hide\ny = 1  # @clear x\n# @mention stays\n"
    lines = [re.sub("<[^>]*>", "", line) for line in code_lines("", source, {})]
    assert lines == ["x = &#39;# @inspect y&#39;  # why", "y = 1", "# @mention stays", ""]


def test_colours_of_a_text_over_several_lines_hold_on_each() -> None:
    for line in code_lines("", '"""one\ntwo # three\n"""', {}):
        assert line.startswith('<span class="s">')


def test_edtrace_still_reads_as_a_trace(lesson: Path) -> None:
    trace = load_trace(traced(lesson), lesson)
    data = json.loads(traced(lesson).read_text())
    assert len(trace.steps) == len(data["steps"])
    assert [step.here.line for step in trace.steps] == [step["stack"][-1]["line_number"] for step in data["steps"]]


def test_without_a_browser_the_tests_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_browser, "find", lambda: None)
    with pytest.raises(page_browser.NoBrowserError, match="python tests/page_browser.py"), page_browser.launched():
        pass
    monkeypatch.undo()
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(page_browser.NoBrowserError, match="/no/such/browser"):
        page_browser.find()
