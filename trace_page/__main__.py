"""`python -m trace_page lecture_07` records a run on real ranks, then writes var/traces/lecture_07.html."""

import argparse
import sys
from pathlib import Path

from .draw.page import TRACES, write_page
from .errors import exit_code
from .read.trace import load_trace
from .record import record_lecture


def _check_what_is_there(lecture: str) -> None:
    """Say what is wrong with the trace before the run, not after. There may be none if there is a program to run."""
    trace, source = Path(TRACES, f"{lecture}.json"), Path(*lecture.split(".")).with_suffix(".py")
    if trace.exists() or not source.exists():
        load_trace(trace, Path())


def main(arguments: list[str] | None = None) -> int:
    """Record and build one page; returns the exit code, see `exit_code`."""
    parser = argparse.ArgumentParser(
        prog="python -m trace_page",
        description="Run LECTURE on its real ranks, which writes var/traces/LECTURE_stdout.txt and _recording.json; "
        "build var/traces/LECTURE.html from these and var/traces/LECTURE.json (python -m edtrace.execute -m LECTURE); "
        "without that trace, the narration is that of a pass over main(). "
        "Run it where the sources are.",
    )
    parser.add_argument("--no-record", action="store_true", help="build from the log and recording that are there")
    parser.add_argument("lecture", metavar="LECTURE", help="name of the traced module, for example lecture_07")
    options = parser.parse_args(arguments)
    lecture = options.lecture.removesuffix(".py")

    def build() -> None:
        if not options.no_record:
            _check_what_is_there(lecture)
            record_lecture(lecture)
        print(write_page(Path(), lecture))

    return exit_code(build)


if __name__ == "__main__":
    sys.exit(main())
