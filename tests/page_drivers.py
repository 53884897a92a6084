"""Firefox and WebKit for the page's tests, each behind the same few functions.

Firefox is driven by its own WebDriver BiDi, since Debian has no geckodriver; WebKit's MiniBrowser by WebKitWebDriver on
a display of its own.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import websocket
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains

START = 30.0
"""Seconds that a browser has for starting."""

ARROW_RIGHT = "\ue014"
"""The key, as WebDriver writes it."""

REMEMBER_ERRORS = """
window.errors = []; addEventListener("error", event => errors.push(event.message));
addEventListener("unhandledrejection", event => errors.push(`${event.reason}`)); return 0
"""


class MissingBrowserError(Exception):
    """A browser, or what drives it, is not installed; the message says what to install."""


class Driver(Protocol):
    """One page in a browser. Scripts return JSON values."""

    def open(self, url: str) -> None: ...
    def enter_frame(self) -> None: ...
    def run(self, script: str) -> Any: ...  # noqa: ANN401
    def press(self, key: str, times: int = 1) -> None: ...
    def errors(self) -> list[str]: ...


class Firefox:
    """A page in Firefox, over one socket to the browser."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(f"{address}/session", timeout=START, suppress_origin=True)
        self._numbers = itertools.count()
        self._errors: list[str] = []
        self._call("session.new", capabilities={})
        self._call("session.subscribe", events=["log.entryAdded"])
        self._page = self._context = self._call("browsingContext.getTree")["contexts"][0]["context"]

    def _call(self, method: str, **parameters: object) -> dict:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("method") == "log.entryAdded" and message["params"]["level"] in ("error", "warn"):
                self._errors.append(message["params"]["text"])
            if message.get("id") == number:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['message']}")
                return message["result"]

    def open(self, url: str) -> None:
        self._context = self._page
        self._errors.clear()
        self._call("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def enter_frame(self) -> None:
        tree = self._call("browsingContext.getTree", root=self._page)
        self._context = tree["contexts"][0]["children"][0]["context"]

    def run(self, script: str) -> Any:  # noqa: ANN401
        expression = f"JSON.stringify((() => {{ {script} }})())"
        target = {"context": self._context}
        told = self._call("script.evaluate", expression=expression, target=target, awaitPromise=False)
        if told["type"] != "success":
            raise RuntimeError(told["exceptionDetails"]["text"])
        return json.loads(told["result"].get("value", "null"))

    def press(self, key: str, times: int = 1) -> None:
        keys = [{"type": kind, "value": key} for _ in range(times) for kind in ("keyDown", "keyUp")]
        self._call(
            "input.performActions", context=self._context, actions=[{"type": "key", "id": "keys", "actions": keys}]
        )

    def errors(self) -> list[str]:
        self._call("session.status")  # what was logged before has come by then
        return self._errors

    def close(self) -> None:
        self._socket.close()


class WebKit:
    """A page in WebKit's MiniBrowser. Errors are those from when the page has loaded on."""

    def __init__(self, driver: webdriver.WebKitGTK) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.switch_to.default_content()
        self.driver.get(url)
        self.run(REMEMBER_ERRORS)

    def enter_frame(self) -> None:
        self.driver.switch_to.frame(0)
        self.run(REMEMBER_ERRORS)

    def run(self, script: str) -> Any:  # noqa: ANN401
        return self.driver.execute_script(script)

    def press(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def errors(self) -> list[str]:
        return self.run("return window.errors")


@contextmanager
def _process(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:  # noqa: ANN401
    """A process that ends with the block."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(what: str, found: Callable[[], Any]) -> Any:  # noqa: ANN401
    until = time.monotonic() + START
    while time.monotonic() < until:
        if (result := found()) is not None:
            return result
        time.sleep(0.05)
    raise TimeoutError(f"{what} has not come within {START:.0f} s")


@contextmanager
def firefox() -> Iterator[Firefox]:
    """A headless Firefox with a profile of its own."""
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        raise MissingBrowserError("there is no Firefox: install firefox-esr")
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as profile:
        said = Path(profile, "said.txt")
        command = [path, "--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", profile]
        with said.open("wb") as out, _process(command, stdout=out, stderr=out):
            address = _wait_for("Firefox", lambda: re.search(r"BiDi listening on (ws://\S+)", said.read_text("utf-8")))
            driver = Firefox(address[1])
            try:
                yield driver
            finally:
                driver.close()


@contextmanager
def webkit() -> Iterator[WebKit]:
    """WebKit's MiniBrowser on a display of its own."""
    service, display = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
    browsers = [*Path("/usr/lib").glob("*/webkit2gtk-4.1/MiniBrowser"), *Path("/usr/libexec").glob("webkit2gtk-4.1/*r")]
    if not (service and display and browsers):
        raise MissingBrowserError("there is no WebKit to drive: install webkit2gtk-driver and xvfb")
    read, write = os.pipe()
    with _process([display, "-displayfd", str(write), "-screen", "0", "1300x1000x24"], pass_fds=[write], stderr=-3):
        os.close(write)
        with open(read) as number:
            environment = {"DISPLAY": f":{number.readline().strip()}", "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1"}
        options = webdriver.WebKitGTKOptions()
        options.binary_location = str(browsers[0])
        options.add_argument("--automation")
        driver = webdriver.WebKitGTK(options, webdriver.WebKitGTKService(service, env=os.environ | environment))
        try:
            driver.set_window_size(1280, 900)
            yield WebKit(driver)
        finally:
            driver.quit()


__all__ = ["ARROW_RIGHT", "Driver", "MissingBrowserError", "firefox", "webkit"]
