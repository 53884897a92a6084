"""A page without a trace: its narration is from a pass over `main`, its per-rank steps are from the recording."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from trace_page.__main__ import main

pytest_plugins = ["page_fixtures"]

SOURCE = Path(__file__).parent / "page_fixture/untraced.py"
LINES = SOURCE.read_text(encoding="utf-8").split("\n")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the command has recorded the program and built its page."""
    directory = tmp_path_factory.mktemp("untraced")
    (directory / SOURCE.name).write_bytes(SOURCE.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        assert main(["untraced"]) == 0
    return directory


@pytest.fixture
def page(browser: Browser, directory: Path) -> Page:
    page = browser.new_page()
    page.goto((directory / "var/traces/untraced.html").as_uri())
    yield page
    page.close()


def go_to(page: Page, text: str) -> list[str]:
    """Step to the line with this text; the names of the ranks that execute it."""
    line = next(number for number, code in enumerate(LINES, 1) if text in code)
    page.goto(page.url.split("?")[0] + f"?source=untraced.py&line={line}")
    assert f"line {line}," in page.locator(".status").inner_text()
    return page.locator(".columns-of-ranks thead th").all_inner_texts()


def value(page: Page, name: str) -> str:
    """What the panel shows of a variable, on one line."""
    for text in page.locator(".columns-of-ranks tbody").all_inner_texts():
        if re.match(rf"{name}\b", text):
            return " ".join(text.split())
    return next(" ".join(text.split()) for text in page.locator(".head").all_inner_texts() if text.startswith(name))


def test_the_narration_is_told_around_the_programs(page: Page) -> None:
    assert page.locator("h1").inner_text() == "What needs real ranks"
    told = page.locator("main").inner_text()
    places = [told.index(text) for text in ("def batched", "Wrappers", "def wrapped", "def kinds", "The end.")]
    assert places == sorted(places)


def test_no_trace_is_left_behind(directory: Path) -> None:
    assert {path.name for path in (directory / "var/traces").iterdir()} == {
        "untraced.html",
        "untraced_recording.json",
        "untraced_stdout.txt",
    }


def test_messages_sent_in_a_batch_arrive(page: Page) -> None:
    assert go_to(page, "requests = dist.batch_isend_irecv") == ["rank 0", "rank 1"]
    assert "isend → recv" in page.locator(".moved").first.inner_text()
    go_to(page, "total = mine + theirs")
    assert "21." in value(page, "total") and "same on all ranks" in value(page, "total")


def test_a_wrapped_model_has_the_average_gradient_and_its_place_in_the_mesh(page: Page) -> None:
    assert go_to(page, "gradient = ") == ["rank 0", "rank 1"]
    assert re.search(r"gradient\b.* 2\b", value(page, "gradient")), "the average of 1 and 3"
    assert re.search(r"index\b.*0.*1", value(page, "index"))


def test_sparse_and_complex_tensors_have_steps(page: Page) -> None:
    assert go_to(page, "sparse = ") == ["rank 0", "rank 1"]
    assert go_to(page, "signal = ") == ["rank 0", "rank 1"]
    assert re.search(r"0j.*1j", value(page, "signal"))


def test_what_main_inspects_and_edtrace_cannot_write_is_as_python_writes_it(page: Page) -> None:
    go_to(page, "start(kinds)")
    assert "tensor([1.+2.j])" in page.locator(".values").inner_text()


def test_a_trace_of_that_name_is_no_recording(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    traces = tmp_path / "var/traces"
    traces.mkdir(parents=True)
    (tmp_path / "small.py").write_text("def main():\n    x = 1\n")
    frame = {"path": "small.py", "line_number": 2, "function_name": "main", "code": "x = 1"}
    trace = {"files": {"small.py": "def main():\n    x = 1\n"}, "hidden_line_numbers": {"small.py": []}}
    trace["steps"] = [{"stack": [frame], "env": {}, "renderings": []}]
    for name in ("small", "small_recording"):
        (traces / f"{name}.json").write_text(json.dumps(trace))
    monkeypatch.chdir(tmp_path)
    assert main(["small", "--no-record"]) == 0
    assert "small_recording.json is a trace, not a recording" in capsys.readouterr().out


def test_a_main_that_does_not_run_alone_says_so(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    code = SOURCE.read_text(encoding="utf-8").replace("start(batched)", "1 / 0")
    (tmp_path / "untraced.py").write_text(code)
    recorded = json.loads((directory / "var/traces/untraced_recording.json").read_text())
    from trace_page.record.recording import source_digest

    recorded["files"]["untraced.py"] = source_digest(tmp_path / "untraced.py")
    (tmp_path / "var/traces").mkdir(parents=True)
    (tmp_path / "var/traces/untraced_recording.json").write_text(json.dumps(recorded))
    monkeypatch.chdir(tmp_path)
    assert main(["untraced", "--no-record"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
