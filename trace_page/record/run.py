"""Records a run of a program on its real ranks: `python -m trace_page.record lecture_07`.

The program runs as `python lecture_07.py` runs it, in a process of its own, and knows nothing of being recorded: there
`torch.multiprocessing.spawn` is replaced by a function that hands the original one `RecordedProgram(function)`. Then
each rank traces its own per-rank program and leaves its notes in a temporary directory.
"""

import argparse
import contextlib
import functools
import importlib
import inspect
import os
import pickle
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from trace_page.errors import RecordingError, exit_code
from trace_page.record.recording import (
    Call,
    Location,
    ParentPrint,
    Recording,
    save_recording,
    source_digest,
)

STARTERS = ("spawn", "start_processes")
"""The functions of torch.multiprocessing that start ranks. `spawn` itself calls the other one by another name."""

GRACE = 3.0
"""Seconds that an interrupted run has for ending by itself."""

PACKAGE = Path(__file__).resolve().parents[1]
"""What records: its frames are none of the program's."""

RUN = "import sys; from trace_page.record.run import run_recorded; run_recorded(*sys.argv[1:])"


def record(module_name: str, directory: Path, log_path: Path, recording_path: Path) -> Recording:
    """Run `main()` of the module in `directory` on its ranks; write its stdout, unchanged, and the recording.

    Stderr is passed on. Raises RecordingError when the run fails; both files are then as before. No process is left.
    """
    directory, log_path, recording_path = (Path(path).resolve() for path in (directory, log_path, recording_path))
    for path in (log_path, recording_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    package_parent = str(PACKAGE.parent)
    search_path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    new_log = log_path.with_name(f".{log_path.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory(prefix="recording-") as notes, new_log.open("wb") as log:
            _run_to_the_end(
                [sys.executable, "-c", RUN, module_name, str(directory), notes],
                cwd=directory,
                env=os.environ | {"PYTHONPATH": search_path, "PYTHONIOENCODING": "utf-8"},
                stdout=log,
            )
            recording = pickle.loads((Path(notes) / "recording").read_bytes())
            save_recording(recording, recording_path)
        new_log.replace(log_path)
    finally:
        new_log.unlink(missing_ok=True)
    return recording


def _run_to_the_end(command: list[str], **options: Any) -> None:  # noqa: ANN401
    """Run a command; whatever ends this process or this call ends all that the command has started."""
    # Its own session can be ended as a whole. Its stdin is never written to: when it ends, this process has ended.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options) as process:
        try:
            status = process.wait()
        except BaseException:
            _send(process, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            raise
        finally:
            _send(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    if status != 0:
        ended = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        raise RecordingError(f"the recorded run of {command[3]} {ended}; its own message is above")


def _send(process: subprocess.Popen, signal_number: int) -> None:
    """Send a signal to all processes of a session; where there are no sessions, end its first process."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # they have all ended
            os.killpg(process.pid, signal_number)
    else:
        process.terminate()


class RecordedProgram:
    """A per-rank program that leaves its notes in a directory; to the outside it looks like the function."""

    def __init__(self, function: Callable, notes_path: str) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._notes_path = notes_path

    def __call__(self, rank: int, *args: object) -> None:
        # Not above: the program's own imports come first in each rank, as in a plain run.
        from trace_page.record.rank_tracer import RankTracer, device_name

        tracer = RankTracer(self._function)
        notes = (tracer.run(rank, *args), tracer.backend, device_name())
        Path(f"{self._notes_path}-{rank}").write_bytes(pickle.dumps(notes))


def run_recorded(module_name: str, directory: str, notes: str) -> None:
    """The recorded run's own process: run the program and leave its recording in the directory `notes`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path.insert(0, directory)
    module = importlib.import_module(module_name)
    if not callable(getattr(module, "main", None)):
        raise SystemExit(f"{module.__file__} has no main() that could be recorded")
    sys.argv = [module.__file__]
    run = _Run(Path(directory), Path(notes))
    with run.watching():
        module.main()
    sys.stdout.flush()
    (Path(notes) / "recording").write_bytes(pickle.dumps(run.recording(module)))


def _end_with_parent() -> None:
    """Wait until the process that reads the recording is no more, then end the whole run."""
    os.read(0, 1)  # not sys.stdin, which could not be closed while a thread waits for it
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class _Run:
    """The calls of torch.multiprocessing.spawn in this process, and what is printed between them."""

    def __init__(self, directory: Path, notes: Path) -> None:
        self._directory = directory
        self._notes = notes
        self._calls: list[Call] = []
        self._prints: list[ParentPrint] = []
        self._unfinished_line = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside it, calls of STARTERS and printed lines are noted."""
        import torch.multiprocessing  # the program's own imports come first, as in a plain run

        # Also where the program has imported one of them itself.
        modules = [module for module in sys.modules.values() if self._path_of(getattr(module, "__file__", None))]
        originals = [
            (vars(module), name, vars(module)[name])
            for module in (torch.multiprocessing, *modules)
            for name in STARTERS
            if vars(module).get(name) is getattr(torch.multiprocessing, name)
        ]
        stdout, write = sys.stdout, sys.stdout.write

        def write_and_note(text: str) -> int:
            self._note_printed(text, sys._getframe(1))
            return write(text)

        for names, name, original in originals:
            names[name] = self._recorded(original)
        stdout.write = write_and_note
        try:
            yield
        finally:
            del stdout.write
            for names, name, original in originals:
                names[name] = original

    def _recorded(self, original: Callable) -> Callable:
        """A function of STARTERS that notes its calls."""

        @functools.wraps(original)
        def start(fn: Callable, args: tuple = (), nprocs: int = 1, *rest: Any, **options: Any) -> Any:  # noqa: ANN401
            notes_path = str(self._notes / str(len(self._calls)))
            self._note_call(fn, nprocs, sys._getframe(1))
            return original(RecordedProgram(fn, notes_path), args, nprocs, *rest, **options)

        return start

    def recording(self, module: ModuleType) -> Recording:
        """What the run has left, once it is over. Raises RecordingError when nothing was run on ranks."""
        if not self._calls:
            raise RecordingError(f"main() of {module.__file__} has not called torch.multiprocessing.spawn")
        backends, devices = set(), set()
        for index, call in enumerate(self._calls):
            for rank in range(call.world_size):
                notes, backend, device = pickle.loads((self._notes / f"{index}-{rank}").read_bytes())
                call.ranks.append(notes)
                backends.add(backend)
                devices.add(device)
        paths = {self._path_of(module.__file__), *(call.path for call in self._calls)}
        paths.update(call.caller.path for call in self._calls if call.caller)
        return Recording(
            module=module.__name__,
            files={path: source_digest(self._directory / path) for path in sorted(paths)},
            environment={
                "python": platform.python_version(),
                "torch": version("torch"),
                "platform": f"{platform.system()} {platform.machine()}",
                "backends": sorted(backends - {None}),
                "devices": sorted(devices),
            },
            calls=self._calls,
            prints=self._prints,
        )

    def _path_of(self, file: str | None) -> str | None:
        """The path of one of the program's own files relative to its directory; None for any other file."""
        path = Path(file).resolve() if file else None
        if path is None or not path.is_relative_to(self._directory) or path.is_relative_to(PACKAGE):
            return None
        return None if "site-packages" in path.parts else path.relative_to(self._directory).as_posix()

    def _note_call(self, function: Callable, world_size: int, frame: FrameType | None) -> None:
        original = inspect.unwrap(function)
        if not inspect.isfunction(original) or self._path_of(original.__code__.co_filename) is None:
            raise RecordingError(f"cannot record {function!r}: it is not a function written in {self._directory}")
        caller = None
        while frame is not None:
            code = frame.f_code
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            path = self._path_of(code.co_filename)
            if path and not any(frame.f_locals.get(name) is function for name in parameters):
                caller = Location(path, frame.f_lineno, code.co_name)
                break
            frame = frame.f_back
        path = self._path_of(original.__code__.co_filename)
        line = original.__code__.co_firstlineno
        self._calls.append(Call(original.__name__, path, line, world_size, caller, ranks=[]))

    def _note_printed(self, text: str, frame: FrameType | None) -> None:
        *lines, self._unfinished_line = (self._unfinished_line + text).split("\n")
        while lines and frame is not None and self._path_of(frame.f_code.co_filename) is None:
            frame = frame.f_back
        for line in lines:
            path, number = (self._path_of(frame.f_code.co_filename), frame.f_lineno) if frame else (None, None)
            self._prints.append(ParentPrint(path, number, len(self._calls), line))


def record_lecture(name: str) -> None:
    """Record the run of the module `name` in the current directory, into var/traces, as `record` does."""
    traces = Path("var", "traces")
    record(name, Path.cwd(), traces / f"{name}_stdout.txt", traces / f"{name}_recording.json")


def main() -> int:
    """Record the run of a module in the current directory, into var/traces."""
    parser = argparse.ArgumentParser(prog="python -m trace_page.record", description=main.__doc__)
    parser.add_argument("module", help="name of the program, for example lecture_07")
    name = parser.parse_args().module.removesuffix(".py")
    return exit_code(lambda: record_lecture(name))
