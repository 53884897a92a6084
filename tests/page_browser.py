"""The browser that the page's tests and benchmark drive.

`python tests/page_browser.py` brings one where it can: a Chrome or Chromium that is there is used; Debian's package is
installed as root, with Firefox and WebKit; elsewhere Playwright downloads its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)


PACKAGES = {"firefox-esr": "firefox-esr", "WebKitWebDriver": "webkit2gtk-driver", "Xvfb": "xvfb"}
"""Debian's packages, by their commands, for the tests in other browsers, which are skipped without them."""


class NoBrowserError(Exception):
    """There is no browser to test with; the message says what to do."""


def find() -> str | None:
    """The path of a Chrome or Chromium: CHROMIUM from the environment, on PATH, at its usual place, or Playwright's."""
    if named := os.environ.get("CHROMIUM"):
        if not Path(named).is_file():
            raise NoBrowserError(f"CHROMIUM names {named}, which is no file")
        return named
    found = [path for name in NAMES if (path := shutil.which(name))] + [path for path in PLACES if Path(path).is_file()]
    if found:
        return found[0]
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).is_file() else None


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless browser; raises NoBrowserError when there is none."""
    path = find()
    if path is None:
        raise NoBrowserError("no Chrome or Chromium found: run python tests/page_browser.py, or set CHROMIUM to one")
    # Chromium's sandbox cannot start as root, as in a container.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*arguments, "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def bring() -> str:
    """Make sure that there is a browser and say what was done. Raises CalledProcessError when installing one fails."""
    path = find()
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        wanted = [package for command, package in PACKAGES.items() if not shutil.which(command)]
        wanted += [] if path else ["chromium"]
        if wanted:
            subprocess.run(["apt-get", "update"], check=True)
            subprocess.run(["apt-get", "install", "-y", *wanted], check=True)
            return f"installed Debian's {', '.join(wanted)}"
    if path:
        return f"using {path}"
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)
    return "installed Playwright's chromium"


if __name__ == "__main__":
    try:
        print(bring())
    except (NoBrowserError, subprocess.CalledProcessError) as error:
        sys.exit(f"{error}\nInstall Chrome or Chromium, or set CHROMIUM to the path of one.")
