"""`python -m trace_page lecture_07` writes var/traces/lecture_07.html."""

import argparse
import sys
from pathlib import Path

from .errors import InputError
from .page import write_page


def main(arguments: list[str] | None = None) -> int:
    """Build one page; returns the exit code: 0, or 2 with one line on stderr when an input cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m trace_page",
        description="Write var/traces/LECTURE.html from var/traces/LECTURE.json (python -m edtrace.execute -m LECTURE) "
        "and var/traces/LECTURE_stdout.txt (python LECTURE.py > …). Run it where the sources are.",
    )
    parser.add_argument("lecture", metavar="LECTURE", help="name of the traced module, for example lecture_07")
    lecture = parser.parse_args(arguments).lecture.removesuffix(".py")
    try:
        report = write_page(Path(), lecture)
    except (InputError, OSError) as error:
        print(f"trace_page: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
