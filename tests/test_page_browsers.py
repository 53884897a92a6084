"""The page in a real Firefox and a real WebKit; where one, or what drives it, is not installed, it is skipped."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from page_drivers import ARROW_RIGHT, Driver, MissingBrowserError, firefox, webkit

pytest_plugins = ["page_fixtures"]

STATUS = "return document.querySelector('.status').textContent"


@pytest.fixture(scope="module", params=[firefox, webkit], ids=["firefox", "webkit"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    try:
        with request.param() as driver:
            yield driver
    except MissingBrowserError as error:
        pytest.skip(str(error))


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *told: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def served(lesson: Path) -> Iterator[str]:
    """The address of the pages' folder over HTTP: pages there are of one origin, and may look into their frames."""
    handler = functools.partial(Silent, directory=str(lesson / "var/traces"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def framed(lesson: Path, name: str, attributes: str) -> str:
    """Write a page that has the program's page in a frame; returns its name."""
    html = (
        f'<!doctype html><meta charset="utf-8"><title>frame</title><iframe src="exchange.html" {attributes}></iframe>'
    )
    (lesson / "var/traces" / name).write_text(html, encoding="utf-8")
    return name


def page(lesson: Path, query: str = "") -> str:
    return (lesson / "var/traces/exchange.html").as_uri() + query


def test_the_first_view_has_the_lecture_and_its_first_step(driver: Driver, lesson: Path) -> None:
    driver.open(page(lesson))
    assert driver.run("return document.querySelector('h1').textContent") == "An exchange"
    assert driver.run(STATUS).startswith("Step 0 of ")
    assert driver.run("return document.querySelectorAll('.current').length") == 1
    assert driver.run("return document.documentElement.scrollWidth <= innerWidth")
    assert driver.errors() == []


def test_ten_steps_by_key(driver: Driver, lesson: Path) -> None:
    driver.open(page(lesson))
    driver.press(ARROW_RIGHT, 10)
    assert driver.run(STATUS).startswith("Step 10 of ")
    box = "document.querySelector('.current').getBoundingClientRect()"
    assert driver.run(f"return {box}.top > 0 && {box}.top < innerHeight")
    assert driver.run("return new URLSearchParams(location.search).has('step')")
    assert driver.errors() == []


def test_one_rank_is_followed(driver: Driver, lesson: Path) -> None:
    driver.open(page(lesson, "?source=exchange.py&line=45"))
    heads = "return [...document.querySelectorAll('.columns-of-ranks thead .mark')].map(mark => mark.textContent)"
    assert driver.run(heads) == ["rank 0", "rank 1"]
    driver.press("1")
    assert driver.run(heads) == ["rank 1"]
    assert driver.errors() == []


def test_nothing_is_too_wide_on_a_phone(driver: Driver, lesson: Path, served: str) -> None:
    name = framed(lesson, "phone.html", 'width="390" height="800"')
    driver.open(f"{served}/{name}")
    driver.enter_frame()
    assert driver.run("return innerWidth") == 390
    assert driver.run("return document.documentElement.scrollWidth") <= 390
    assert driver.errors() == []


def test_without_script_the_lecture_is_there_in_its_order(driver: Driver, lesson: Path, served: str) -> None:
    name = framed(lesson, "plain.html", 'sandbox="allow-same-origin"')
    driver.open(f"{served}/{name}")
    inside = "const inside = document.querySelector('iframe').contentDocument; "
    told = driver.run(inside + "return inside.querySelector('main').innerText")
    places = [told.index(text) for text in ("def main", "def start", "def exchange", "def alone")]
    assert places == sorted(places)
    assert driver.run(inside + "return inside.querySelector('.controls').offsetHeight") == 0


def test_it_steps_where_storage_is_blocked(driver: Driver, lesson: Path, served: str) -> None:
    name = framed(lesson, "blocked.html", 'width="1200" height="800" sandbox="allow-scripts"')
    driver.open(f"{served}/{name}")
    driver.enter_frame()
    assert driver.run("try { localStorage; return false } catch { return true }"), "nothing is blocked"
    driver.run("document.querySelector('[data-do=theme]').click()")
    assert driver.run("return document.documentElement.dataset.theme") in ("light", "dark")
    driver.run("document.querySelector('[data-do=next]').click()")
    assert driver.run(STATUS).startswith("Step 1 of ")
    assert driver.errors() == []
