"""What the lecture's page costs: `python tests/benchmark_page.py` prints each number and its limit; fails above one.

With --record it runs the lecture too, plain and recorded in turn, and compares the fastest run of each.

A step is timed by the script that handles its key, its layout included. Each position counts by its fastest of three
passes, so that what is measured is the page, not what else the machine does.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from page_browser import launched
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parent.parent))
from trace_page.draw.page import TRACES, build_page, load_lecture_log, load_lecture_recording  # noqa: E402
from trace_page.read.trace import load_trace  # noqa: E402
from trace_page.record import record  # noqa: E402

ROOT = Path(__file__).parent.parent
LECTURE = "lecture_07"
POSITIONS = 60

STEP_THROUGH = """async ([positions, key]) => {
    const slider = document.querySelector('.controls input');
    const frame = () => new Promise(requestAnimationFrame);
    const times = [];
    for (const position of positions) {
        slider.value = position;
        slider.dispatchEvent(new Event('input'));
        await frame();
        const event = new KeyboardEvent('keydown', { key, bubbles: true });
        const start = performance.now();
        document.body.dispatchEvent(event);
        times.push(performance.now() - start);
    }
    return times;
}"""


def seconds_to_interactive(browser: Browser, page_file: Path, query: str = "") -> float:
    """Median over nine openings of the time from navigation to the end of the page's script."""
    times = []
    for _ in range(9):
        page = browser.new_page()
        page.goto(page_file.as_uri() + query)
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") / 1000)
        page.close()
    return statistics.median(times)


def milliseconds_of_steps(browser: Browser, page_file: Path, steps: int, query: str = "") -> list[float]:
    """The script time of a step forward and of a step over, at positions over the whole trace."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri() + query)
    positions = [index * (steps - 1) // POSITIONS for index in range(POSITIONS)]
    fastest = []
    for key in ("l", "j"):
        passes = [page.evaluate(STEP_THROUGH, [positions, key]) for _ in range(3)]
        fastest += [min(times) for times in zip(*passes, strict=True)]
    page.close()
    return fastest


def cost_of_recording(runs: int = 3) -> float:
    """How many times as long as a plain run of the lecture a recorded one takes."""
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(runs):
            start = time.perf_counter()
            subprocess.run([sys.executable, f"{LECTURE}.py"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            plain.append(time.perf_counter() - start)
            start = time.perf_counter()
            record(LECTURE, ROOT, Path(directory) / "log.txt", Path(directory) / "recording.json")
            recorded.append(time.perf_counter() - start)
    print(f"a plain run {min(plain):.1f} s, a recorded one {min(recorded):.1f} s")
    return min(recorded) / min(plain)


def main() -> int:
    """Print all numbers; returns 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--record", action="store_true", help="measure the recorded run too: minutes")
    options = parser.parse_args()
    failed = []

    def report(what: str, value: float, limit: float, unit: str) -> None:
        print(f"{what:<48}{value:>10.3f} {unit:<3}(at most {limit:g} {unit})")
        if value > limit:
            failed.append(what)

    start = time.perf_counter()
    trace = load_trace(ROOT / TRACES / f"{LECTURE}.json", ROOT)
    recording, _ = load_lecture_recording(ROOT / TRACES / f"{LECTURE}_recording.json", ROOT)
    log = load_lecture_log(ROOT / TRACES / f"{LECTURE}_stdout.txt", recording, trace)
    html = build_page(LECTURE, ROOT, trace, log, recording)
    report("building, beyond imports", time.perf_counter() - start, 1, "s")
    report("size of the page", len(html.encode()) / 1e6, 1.2, "MB")
    if recording is None:
        print("there is no recording: the page is measured without one")

    with tempfile.TemporaryDirectory() as directory, launched() as browser:
        page_file, longer = Path(directory) / "page.html", Path(directory) / "longer.html"
        page_file.write_text(html, encoding="utf-8")
        tenfold_trace = replace(trace, steps=trace.steps * 10)
        longer.write_text(build_page(LECTURE, ROOT, tenfold_trace, log, recording), encoding="utf-8")
        count = len(trace.steps)
        report("open to interactive", seconds_to_interactive(browser, page_file), 0.2, "s")
        in_the_middle = seconds_to_interactive(browser, page_file, f"?step={count // 2}")
        report("open to interactive, at a step in the middle", in_the_middle, 0.2, "s")
        for mode, query in (("", ""), (", animate", "?animate=1")):
            once = milliseconds_of_steps(browser, page_file, count, query)
            tenfold = milliseconds_of_steps(browser, longer, 10 * count, query)
            report(f"slowest step{mode}", max(once), 8, "ms")
            report(f"slowest step, 10 x the steps{mode}", max(tenfold), 8, "ms")
            ratio = statistics.median(tenfold) / statistics.median(once)
            report(f"median step, 10 x the steps over once{mode}", ratio, 1.5, "x")
    if options.record:
        report("a recorded run over a plain one", cost_of_recording(), 1.5, "x")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
