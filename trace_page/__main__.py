"""`python -m trace_page lecture_07` records a run on real ranks, then writes var/traces/lecture_07.html."""

import argparse
import sys
from pathlib import Path

from .errors import InputError
from .page import TRACES, write_page
from .record import RecordingError, record
from .trace import load_trace


def main(arguments: list[str] | None = None) -> int:
    """Record and build one page; returns the exit code: 0; 1 when the recorded run fails, which says why itself; 2 with
    one line on stderr when an input cannot be used; 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m trace_page",
        description="Run LECTURE on its real ranks, which writes var/traces/LECTURE_stdout.txt and _recording.json; "
        "build var/traces/LECTURE.html from these and var/traces/LECTURE.json (python -m edtrace.execute -m LECTURE). "
        "Run it where the sources are.",
    )
    parser.add_argument("--no-record", action="store_true", help="build from the log and recording that are there")
    parser.add_argument("lecture", metavar="LECTURE", help="name of the traced module, for example lecture_07")
    options = parser.parse_args(arguments)
    lecture = options.lecture.removesuffix(".py")
    traces = Path(TRACES)
    try:
        if not options.no_record:
            load_trace(traces / f"{lecture}.json", Path())  # Say what is wrong with it before the run, not after
            record(lecture, Path.cwd(), traces / f"{lecture}_stdout.txt", traces / f"{lecture}_recording.json")
        report = write_page(Path(), lecture)
    except (InputError, OSError) as error:
        print(f"trace_page: {error}", file=sys.stderr)
        return 2
    except RecordingError as error:
        print(f"trace_page: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("trace_page: interrupted; the files are as they were", file=sys.stderr)
        return 130
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
