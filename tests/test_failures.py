"""Whatever stops one rank: the run says so, ends in time and not with exit code 0, and leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import lecture_07
import lecture_util
from spawn_util import can_fork_ranks

PROGRAM = Path(__file__).with_name("failing_program.py")
POSIX = os.name == "posix"
needs_posix_signals = pytest.mark.skipif(not POSIX, reason="Windows has no such signals")


@dataclass
class Failure:
    """How a run of the failing program ended."""

    exit_code: int
    seconds: float
    """From the moment when all ranks were there, and rank 1 failed, to the end."""
    errors: str
    log: str
    pids: list[int]

    def processes_left(self) -> list[int]:
        """Which ranks still run."""
        return [pid for pid in self.pids if is_running(pid)]


class FailingRun:
    """A run of the failing program in a process group of its own, and its end."""

    def __init__(self, failure: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=os.environ | {"FAILURE": failure},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        """Read the log up to the last rank's line, note the time, and read the rest."""
        for line in self.process.stdout:
            self.lines.append(line)
            if len(self.lines) == 3:
                self.start = time.monotonic()

    def wait_for_ranks(self) -> list[int]:
        """The process ids of the three ranks, as soon as all have said theirs."""
        deadline = time.monotonic() + 60
        while len(self.lines) < 3:
            assert time.monotonic() < deadline and self.process.poll() is None, "the ranks never came"
            time.sleep(0.05)
        return [int(re.fullmatch(r"Rank \d is (\d+)\n", line)[1]) for line in self.lines[:3]]

    def end(self) -> Failure:
        """Wait for the end."""
        pids = self.wait_for_ranks()
        try:
            exit_code = self.process.wait(timeout=90)
            seconds = time.monotonic() - self.start
        finally:
            self.kill()
        self.thread.join()
        return Failure(exit_code, seconds, self.process.stderr.read(), "".join(self.lines), pids)

    def kill(self) -> None:
        """Leave nothing behind, whatever the test has found."""
        left = [pid for pid in (int(line.split()[-1]) for line in self.lines[:3]) if is_running(pid)]
        for pid in left if self.process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        self.process.kill()


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module", autouse=True)
def stopped_run() -> Iterator[FailingRun | None]:
    """The run with a stopped rank takes its time until the others give up: it does so while other tests run."""
    run = FailingRun("stopped") if POSIX else None
    yield run
    if run:
        run.kill()


def test_a_rank_that_raises_ends_the_run_with_its_traceback() -> None:
    failure = FailingRun("raise").end()
    assert failure.exit_code not in (0, None)
    assert failure.seconds < 20
    assert "Rank 1 raised" in failure.errors
    assert "ValueError: invalid literal for int() with base 10: 'not a number'" in failure.errors
    assert "failing_program.py" in failure.errors
    assert "Rank 0 raised" not in failure.errors and "Connection" not in failure.errors
    assert failure.processes_left() == []
    assert "as if nothing" not in failure.log


@needs_posix_signals
def test_a_rank_killed_from_outside_is_named_with_its_signal() -> None:
    failure = FailingRun("killed").end()
    assert failure.exit_code not in (0, None)
    assert failure.seconds < 20
    assert "Rank 1 died of signal SIGKILL" in failure.errors
    assert failure.processes_left() == []


@needs_posix_signals
def test_ctrl_c_ends_everything_in_time_also_ranks_that_wait_in_a_collective() -> None:
    run = FailingRun("sleeps")
    pids = run.wait_for_ranks()
    time.sleep(0.5)
    start = time.monotonic()
    os.killpg(run.process.pid, signal.SIGINT)  # what the terminal does: every process of the group gets it
    failure = run.end()
    assert time.monotonic() - start < 5
    assert failure.exit_code == 130
    assert "Traceback" not in failure.errors
    assert [pid for pid in pids if is_running(pid)] == []


@needs_posix_signals
def test_the_others_do_not_wait_for_ever_for_a_stopped_rank(stopped_run: FailingRun) -> None:
    failure = stopped_run.end()
    assert failure.exit_code not in (0, None)
    assert failure.seconds < 60
    assert "Timed out" in failure.errors
    assert failure.processes_left() == []


@needs_posix_signals
def test_whatever_ends_the_parent_ends_every_process_of_the_run() -> None:
    runs = {name: FailingRun("sleeps") for name in ("SIGTERM", "SIGKILL", "SIGHUP")}
    for name, run in runs.items():
        run.wait_for_ranks()
        processes = [run.process, *psutil.Process(run.process.pid).children(recursive=True)]
        assert len(processes) > 4, "the parent, three ranks, and what starts and tidies up after them"
        run.process.send_signal(getattr(signal, name))
        deadline = time.monotonic() + 10
        while left := [process.pid for process in processes if is_running(process.pid)]:
            assert time.monotonic() < deadline, f"after {name}, processes are left: {left}"
            time.sleep(0.05)
        run.kill()


@needs_posix_signals
@pytest.mark.skipif(not can_fork_ranks("gloo"), reason="here, ranks are not forked")
def test_a_killed_forkserver_is_told_apart_from_a_killed_rank() -> None:
    run = FailingRun("sleeps")
    (rank, *_) = run.wait_for_ranks()
    psutil.Process(rank).parent().kill()
    failure = run.end()
    assert failure.exit_code == 2
    (*_, line) = failure.errors.splitlines()
    assert "the forkserver" in line and "LECTURE_START=spawn" in line
    assert failure.processes_left() == []


def test_a_missing_picture_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="images/no-such-picture.png"):
        lecture_util.image("images/no-such-picture.png", width=640)


def test_a_division_with_a_remainder_names_both_numbers() -> None:
    with pytest.raises(AssertionError, match="10 is not divisible by 4"):
        lecture_07.int_divide(10, 4)
