"""What the lecture's narration, its trace and its command line need besides edtrace."""

import argparse
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import NoReturn, TypeVar

import edtrace
import torch.multiprocessing as mp

from gpu_util import launched
from spawn_util import DemoCannotRun, killed_ranks, notify, requested

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


Definition = TypeVar("Definition", bound=Callable)


def untraced(definition: Definition) -> Definition:
    """Decorator: the trace passes over the lines of this function or class, and into the functions that they call.

    edtrace follows the code of the lecture by the name of its file, so this code gets another name of the same file.
    """
    functions = vars(definition).values() if inspect.isclass(definition) else [definition]
    for function in filter(inspect.isfunction, functions):
        function.__code__ = _under_another_name(function.__code__)
    return definition


def _under_another_name(code: CodeType) -> CodeType:
    """The code, and all code inside it, from `./file` instead of `file`."""
    file = Path(code.co_filename)
    inside = tuple(_under_another_name(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=f"{file.parent}{os.sep}.{os.sep}{file.name}", co_consts=inside)


def run(main: Callable[[], None]) -> None:
    """Run the lecture as a command: parse its arguments, and end with a message and an exit code when a rank fails."""
    sections = _sections(main)
    parser = _OneLineParser(description="Run the lecture's demos on real processes, one for each rank.")
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"run just these sections: {', '.join(sections)} (default: all)"
    )
    parser.add_argument(
        "--world-size",
        type=int,
        metavar="N",
        help="run every demo on N ranks, where its sizes divide by N (default: as the lecture says; under torchrun, "
        "the launcher decides)",
    )
    arguments = parser.parse_args()
    for name in arguments.sections:
        if name not in sections:
            parser.error(f"no section {name!r}: choose from {', '.join(sections)}")
    if arguments.world_size is not None and arguments.world_size < 1:
        parser.error(f"--world-size must be at least 1, not {arguments.world_size}")
    try:
        launch = launched()
    except ValueError as error:
        parser.error(str(error))
    if arguments.world_size is not None and launch:
        parser.error("--world-size is the launcher's to say: leave it out under torchrun")
    requested.world_size, requested.sections = arguments.world_size, tuple(arguments.sections)
    for name in arguments.sections:
        if "spawn" not in sections[name].__code__.co_names:
            notify(f"Section {name} has no demo to run: read it on the page, var/traces/{Path(parser.prog).stem}.html")

    try:
        for section in [sections[name] for name in arguments.sections] or [main]:
            section()
    except DemoCannotRun as failure:
        notify(f"{parser.prog}: {failure}")
        sys.exit(2)
    except mp.ProcessRaisedException as failure:
        if "\nBrokenPipeError: " in str(failure):
            sys.exit("Nobody reads the log any more, and the run ends.")
        sys.exit(f"Rank {failure.error_index} raised an error, and the run ends:{failure}")
    except mp.ProcessExitedException as failure:
        signal_name = failure.signal_name
        ending = f"died of signal {signal_name}" if signal_name else f"left with exit code {failure.exit_code}"
        hint = " The kernel does that when memory is short." if signal_name == "SIGKILL" else ""
        if failure.error_index in killed_ranks:
            hint = " It had not ended by itself, nor when it was asked to."
        sys.exit(f"Rank {failure.error_index} {ending}, and the run ends.{hint}")
    except KeyboardInterrupt:
        print("Interrupted: every rank has ended.", file=sys.stderr)
        sys.exit(130)


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _sections(main: Callable[[], None]) -> dict[str, Callable[[], None]]:
    """The functions of its own module that `main` calls, by name, in the order of the lecture."""
    called = {name: main.__globals__.get(name) for name in main.__code__.co_names}
    return {name: value for name, value in called.items() if getattr(value, "__module__", "") == main.__module__}
