"""What the page's tests share: a small lesson, traced and run for real, its page, and one browser for all tests."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_browser import NoBrowserError, launched
from PIL import Image, PngImagePlugin
from playwright.sync_api import Browser, Page

from trace_page.draw.page import write_page
from trace_page.read.recording import load_recording
from trace_page.read.trace import Trace, load_trace
from trace_page.record import record
from trace_page.record.recording import Recording

SOURCES = Path(__file__).parent / "page_fixture"


@pytest.fixture(scope="session")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sources, traces, logs and pages of a lesson that calls its ranks itself, which cannot be
    recorded, and of a program on real ranks with its recording."""
    directory = tmp_path_factory.mktemp("lesson")
    for source in SOURCES.glob("*.py"):
        (directory / source.name).write_bytes(source.read_bytes())
    description = PngImagePlugin.PngInfo()
    description.add_text("Description", "Four ranks in a row")
    Image.new("RGB", (400, 200), "#0072b2").save(directory / "picture.png", pnginfo=description)
    (directory / "clip.mp4").write_bytes(bytes(100))
    (directory / "var/traces").mkdir(parents=True)
    traces = directory / "var/traces"
    traced = [sys.executable, "-m", "edtrace.execute", "-m"]
    names = ("lesson", "exchange", "calls")
    tracing = [subprocess.Popen([*traced, name], cwd=directory, stdout=subprocess.DEVNULL) for name in names]
    with open(traces / "lesson_stdout.txt", "wb") as log:
        subprocess.run([sys.executable, "lesson.py"], cwd=directory, stdout=log, check=True)
    assert [process.wait() for process in tracing] == [0, 0, 0]
    record("exchange", directory, traces / "exchange_stdout.txt", traces / "exchange_recording.json")
    for name in names:
        write_page(directory, name)
    return directory


@pytest.fixture(scope="session")
def exchange(lesson: Path) -> Trace:
    """The trace of the program on real ranks."""
    return load_trace(lesson / "var/traces/exchange.json", lesson)


@pytest.fixture(scope="session")
def recording(lesson: Path) -> Recording:
    """Its recording."""
    return load_recording(lesson / "var/traces/exchange_recording.json")


@pytest.fixture(scope="session")
def trace(lesson: Path) -> dict:
    """The lesson's trace, as edtrace wrote it."""
    return json.loads((lesson / "var/traces/lesson.json").read_text())


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; without one the tests that need it fail and say what to install."""
    try:
        with launched() as browser:
            yield browser
    except NoBrowserError as error:
        pytest.fail(str(error))


@pytest.fixture
def open_page(browser: Browser, lesson: Path) -> Iterator[Callable[..., Page]]:
    """Opens the lesson's page at an address; fails the test on any error, refused resource or request of a page."""
    pages, trouble = [], []

    def open_at(query: str = "", width: int = 1280, height: int = 900, name: str = "lesson", **options: object) -> Page:
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.on("request", lambda request: None if _is_local(request.url) else trouble.append(request.url))
        page.goto((lesson / f"var/traces/{name}.html").as_uri() + query)
        return page

    def _is_local(url: str) -> bool:
        return url.startswith(("file:", "data:"))

    yield open_at
    for page in pages:
        page.close()
    assert not trouble
