"""How ranks start: forked from a server that has imported torch, or each from nothing; the same run either way."""

import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.multiprocessing as mp

import lecture_07
import spawn_util
from spawn_util import START_METHOD, DemoCannotRun, can_fork_ranks
from trace_page.record import record

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).with_name("start_program.py")
FORKS = can_fork_ranks("gloo")
needs_forks = pytest.mark.skipif(not FORKS, reason="here, ranks are not forked")
RECORDED = """
import torch
import torch.multiprocessing as mp

def program(rank, world_size):
    x = torch.arange(world_size, dtype=torch.float32) + rank
    print(f"rank {rank} has {x.tolist()}")

def main():
    START
"""


def start(*arguments: str, **environment: str) -> subprocess.Popen:
    """Start a program, with its output in pipes."""
    command = [sys.executable, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | environment, text=True, **pipes)


# Which way


@needs_forks
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (sys, "platform", "darwin"),
        (sys, "ps1", ">>> "),
        (sys, "flags", SimpleNamespace(interactive=1)),
        (multiprocessing, "get_all_start_methods", lambda: ["spawn"]),
    ],
)
def test_where_a_fork_is_unsafe_or_unknown_or_would_outlive_its_code_ranks_are_not_forked(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object
) -> None:
    assert can_fork_ranks("gloo")
    monkeypatch.setattr(module, name, value, raising=False)
    assert not can_fork_ranks("gloo")


def test_ranks_on_gpus_are_not_forked() -> None:
    assert not can_fork_ranks("nccl")


def test_who_asks_for_spawn_gets_it_and_who_asks_for_another_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_METHOD, "spawn")
    assert not can_fork_ranks("gloo")
    monkeypatch.setenv(START_METHOD, "fork")
    with pytest.raises(DemoCannotRun, match="LECTURE_START is 'fork': set it to spawn"):
        can_fork_ranks("gloo")
    monkeypatch.setenv(START_METHOD, "")
    assert can_fork_ranks("gloo") is FORKS


@needs_forks
@pytest.mark.parametrize("error", [OSError("AF_UNIX path too long"), EOFError("unexpected EOF")])
def test_without_a_server_mp_spawn_starts_ranks_as_ever_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, error: Exception
) -> None:
    def fail() -> None:
        raise error

    calls = []
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", fail)
    monkeypatch.setattr(
        sys.modules[mp.ProcessContext.__module__],
        "start_processes",
        lambda *args, **kwargs: calls.append((*args, kwargs)),
    )
    spawn_util.notify.cache_clear()
    lecture_07.spawn(lecture_07.all_reduce, 2, num_elements=8)
    lecture_07.spawn(lecture_07.all_reduce, 2, num_elements=8)
    assert [(function, args, nprocs) for function, args, nprocs, *_ in calls] == [
        (lecture_07.all_reduce, (2, 8), 2)
    ] * 2
    assert all("spawn" in (*positional, *options.values()) for *positional, options in calls)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "forkserver" in line]
    assert str(error) in line


# Both ways are one run


def without_times(log: str) -> list[str]:
    """The lines of a log in any order, with neither durations nor bandwidths."""
    return sorted(re.sub(r"(took|bandwidth =) .*", r"\1", line) for line in log.splitlines())


def test_both_ways_give_the_same_log_but_for_times() -> None:
    arguments = ("lecture_07.py", "--world-size", "2", "torch_distributed", "benchmarking", "data_parallelism")
    ways = [start(*arguments, **{START_METHOD: way}) for way in ("", "spawn")]
    outputs = [process.communicate(timeout=200) for process in ways]
    assert [process.returncode for process in ways] == [0, 0], outputs
    (forked, forked_errors), (spawned, spawned_errors) = outputs
    assert without_times(forked) == without_times(spawned)
    assert len(forked.splitlines()) == 2 * (6 + 4 + 1)
    assert forked_errors == spawned_errors


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What the four ranks of the program tell."""
    second_log = tmp_path_factory.mktemp("start") / "log.txt"
    process = start(str(PROGRAM), SECOND_LOG=str(second_log))
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return [line.split() for log in (output, second_log.read_text()) for line in sorted(log.splitlines())]


@needs_forks
class TestForkedRanks:
    def test_they_all_come_from_one_server_that_has_imported_what_they_need(self, told: list[list[str]]) -> None:
        assert [words[0] for words in told] == ["0", "1", "0", "1"]
        assert len({words[1] for words in told}) == 1
        assert [words[2] for words in told] == ["True"] * 4

    def test_the_server_has_one_thread(self, told: list[list[str]]) -> None:
        assert [words[3] for words in told] == ["1"] * 4

    def test_what_they_must_know_travels_with_the_call(self, told: list[list[str]]) -> None:
        assert [words[4] for words in told] == ["first", "first", "second", "second"]
        assert [words[5] for words in told] == ["no-gpu"] * 4
        assert [words[6] for words in told] == ["False"] * 4, "and nothing of the server's own environment"
        assert [words[7] for words in told] == [str(REPOSITORY)] * 2 + [str(Path(os.sep))] * 2

    def test_their_output_goes_where_stdout_leads_now(self, told: list[list[str]]) -> None:
        assert len(told) == 4, "two lines in each log"


SERVER_WITHOUT_CUDA = """
import sys
import torch
from spawn_util import SERVER_MODULES

def called(*_):
    raise SystemExit(f"asked for a GPU: {sys._getframe(1).f_code}")

for name in vars(torch._C):
    if name.startswith("_cuda"):
        setattr(torch._C, name, called)
for name in SERVER_MODULES:
    __import__(name)
__import__(sys.modules["server_util"].LATER)
"""


def test_what_the_server_imports_asks_for_no_gpu() -> None:
    process = start("-c", SERVER_WITHOUT_CUDA, PYTHONPATH=str(REPOSITORY))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no forkserver")
def test_both_ways_are_recorded_alike(tmp_path: Path) -> None:
    recordings = []
    for name, call in {
        "spawned": "mp.spawn(program, args=(2,), nprocs=2, join=True)",
        "forked": 'mp.start_processes(program, args=(2,), nprocs=2, join=True, start_method="forkserver")',
    }.items():
        (tmp_path / f"{name}.py").write_text(RECORDED.replace("START", call), encoding="utf-8")
        recordings.append(record(name, tmp_path, tmp_path / f"{name}.txt", tmp_path / f"{name}.json"))
    (spawned,), (forked,) = (recording.calls for recording in recordings)
    assert spawned.ranks == forked.ranks
    assert [line.text for rank in forked.ranks for line in rank.prints] == [
        "rank 0 has [0.0, 1.0]",
        "rank 1 has [1.0, 2.0]",
    ]
