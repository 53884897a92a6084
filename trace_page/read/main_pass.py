"""A trace of `main` alone, for a program that has no trace with communication switched off but has a recording.

The program runs under edtrace in a process of its own. There each per-rank program that the recording has does nothing,
and `torch.multiprocessing.spawn` calls it in place: the recording knows what happens in it.
"""

import functools
import importlib
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from ..errors import InputError
from ..record.recording import Recording
from .trace import Trace, load_trace

RUN = "import sys; sys.path[:0] = sys.argv[1:3]; from trace_page.read.main_pass import run; run(*sys.argv[3:])"


def trace_main(recording: Recording, root: Path) -> Trace:
    """Trace `main` of the recorded module, whose sources are in `root`. Raises InputError when it fails."""
    programs = sorted({(call.path, call.function) for call in recording.calls})
    package = str(Path(__file__).resolve().parents[2])
    with tempfile.TemporaryDirectory(prefix="main-") as directory:
        path = Path(directory, f"{recording.module}.json")
        command = [sys.executable, "-c", RUN, str(root.resolve()), package]
        command += [recording.module, json.dumps(programs), str(path)]
        result = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if result.returncode != 0:
            told = result.stderr.decode(errors="replace").strip().split("\n")[-1]
            raise InputError(f"there is no trace of {recording.module}, and its main() alone does not run: {told}")
        return load_trace(path, root)


def run(module_name: str, programs: str, path: str) -> None:
    """In the process of its own: trace main() of a module into the file `path`."""
    import torch.multiprocessing
    from edtrace import execute

    module = importlib.import_module(module_name)
    files = {Path(file).resolve(): found for found in [*sys.modules.values()] if (file := _file_of(found))}
    for program_path, name in json.loads(programs):
        found = files.get(Path(program_path).resolve())
        if inspect.isfunction(program := inspect.unwrap(getattr(found, name, module))):
            _do_nothing_in(program)
    original = torch.multiprocessing.spawn
    holders = [vars(found) for found in [torch.multiprocessing, *files.values()]]
    for names in holders:
        if names.get("spawn") is original:
            names["spawn"] = _call_in_place
    execute.to_serializable_value = _tolerant(execute.to_serializable_value)
    trace = execute.execute(module_name=module_name, inspect_all_variables=False)
    Path(path).write_text(json.dumps(execute.asdict(trace)), encoding="utf-8")


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if file and Path(file).is_relative_to(Path.cwd()) and "site-packages" not in file else None


def _do_nothing_in(function: Callable) -> None:
    """Take a function's body away, and leave the place in its file."""
    code = function.__code__
    nothing = (lambda *args, **kwargs: None).__code__
    if code.co_freevars:
        raise TypeError(f"{code.co_name} is a closure, which cannot be passed over")
    function.__code__ = nothing.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
    )


def _call_in_place(fn: Callable, args: tuple = (), nprocs: int = 1, *rest: object, **options: object) -> None:
    fn(0, *args)


def _tolerant(serialize: Callable) -> Callable:
    """edtrace's reading of a value; one that it cannot write as JSON (sparse, complex) is what `str` says of it."""
    from edtrace.execute import Value, asdict, get_type_str

    @functools.wraps(serialize)
    def read(value: object) -> Value:
        try:
            found = serialize(value)
            json.dumps(asdict(found))
        except Exception:  # noqa: BLE001  whatever a tensor's own conversion raises
            return Value(type=get_type_str(value), contents=str(value))
        return found

    return read
