"""In the forkserver's process, and imported nowhere else: it imports for the ranks while the first of them run.

What an optimizer's first step needs takes a second to import. The first ranks do without, and should not wait for it.
"""

import importlib
import os
import signal
from contextlib import suppress
from types import FrameType

LATER = "torch._dynamo"
PAUSE = 0.4
"""Seconds after a fork without another one: by then, all ranks of the first demo are there."""


def _import_later(signal_number: int, frame: FrameType | None) -> None:
    global _imported
    _imported = True
    with suppress(ImportError):  # then each rank says what is wrong, if it needs it
        importlib.import_module(LATER)


def _after_fork() -> None:
    if not _imported:
        signal.setitimer(signal.ITIMER_REAL, PAUSE)


_imported = False
signal.signal(signal.SIGALRM, _import_later)
os.register_at_fork(
    after_in_parent=_after_fork,  # the main thread handles the alarm, between two forks
    after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL),
)
