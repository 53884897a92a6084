"""What the lecture's narration and its command line need besides edtrace."""

import sys
from collections.abc import Callable
from pathlib import Path

import edtrace
import torch.multiprocessing as mp

LECTURE_DIR = Path(__file__).resolve().parent


def article_link(url: str) -> None:
    """Show a link to an article."""
    edtrace.link(title="article", url=url)


def post_link(url: str) -> None:
    """Show a link to a blog post."""
    edtrace.link(title="post", url=url)


def video_link(url: str) -> None:
    """Show a link to a video."""
    edtrace.link(title="video", url=url)


def image(path: str, width: int) -> None:
    """Show the picture at `path`, relative to the lecture, `width` CSS pixels wide, from whatever directory it runs.

    Raises FileNotFoundError if there is no such picture.
    """
    file = LECTURE_DIR / path
    if not file.is_file():
        raise FileNotFoundError(f"No picture {path} in {LECTURE_DIR}: `python images/draw.py` draws all of them")
    edtrace.image(path if Path.cwd() == LECTURE_DIR else str(file), width=width)


def run(main: Callable[[], None]) -> None:
    """Run the lecture as a command: a rank that fails, or Ctrl-C, ends it with a message and a non-zero exit code."""
    try:
        main()
    except mp.ProcessRaisedException as failure:
        sys.exit(f"Rank {failure.error_index} raised an error, and the run ends:{failure}")
    except mp.ProcessExitedException as failure:
        signal_name = failure.signal_name
        ending = f"died of signal {signal_name}" if signal_name else f"left with exit code {failure.exit_code}"
        hint = " The kernel does that when memory is short." if signal_name == "SIGKILL" else ""
        sys.exit(f"Rank {failure.error_index} {ending}, and the run ends.{hint}")
    except KeyboardInterrupt:
        print("Interrupted: every rank has ended.", file=sys.stderr)
        sys.exit(130)
