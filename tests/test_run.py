"""`python lecture_07.py` prints the 52 lines of the contract, on any machine and from anywhere."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_lines import LINES, check_log

REPOSITORY = Path(__file__).resolve().parent.parent
AS_THE_LECTURE_SAYS = {
    "collectives": 4,
    "benchmarks": 4,
    "data_parallelism": 4,
    "tensor_parallelism": 4,
    "pipeline_parallelism": 2,
}
FORMER_PORT = 15623


def can_unshare() -> bool:
    """Whether this process may have mounts and a hostname of its own: root on Linux, unless a container forbids it."""
    try:
        return subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.CompletedProcess]]:
    """Two runs at once, while a port that many tutorials use is taken: a plain one, and one under hostile conditions.

    The latter runs from a read-only checkout and another directory, unbuffered, and, where the test may, with a
    hostname that does not resolve.
    """
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("lecture_07.py", "gpu_util.py", "lecture_util.py", "rank_util.py", "spawn_util.py", "server_util.py"):
        shutil.copy(REPOSITORY / name, checkout)
    shutil.copytree(REPOSITORY / "images", checkout / "images")
    for path in [*checkout.rglob("*"), checkout]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    plain = [sys.executable, str(REPOSITORY / "lecture_07.py")]
    hostile = [sys.executable, str(checkout / "lecture_07.py")]
    if can_unshare():  # root may write anywhere, so bind the checkout read-only in a mount namespace
        script = 'hostname no-such-host.invalid; mount --bind -o ro "$1" "$1"; shift; exec "$@"'
        hostile = ["unshare", "--mount", "--uts", "sh", "-ec", script, "sh", str(checkout), *hostile]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("", FORMER_PORT))
        taken.listen()
        processes = {
            "plain": subprocess.Popen(plain, cwd=REPOSITORY, stdout=-1, stderr=-1, text=True),
            "hostile": subprocess.Popen(
                hostile, cwd=elsewhere, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdout=-1, stderr=-1, text=True
            ),
        }
        try:
            outputs = {name: process.communicate(timeout=240) for name, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
    yield {
        name: subprocess.CompletedProcess(process.args, process.returncode, *outputs[name])
        for name, process in processes.items()
    }
    for path in [checkout, *checkout.rglob("*")]:
        path.chmod(0o755)


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_it_prints_the_lines_of_the_contract_each_whole(
    runs: dict[str, subprocess.CompletedProcess], name: str
) -> None:
    run = runs[name]
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 52
    check_log(run.stdout, AS_THE_LECTURE_SAYS)


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_it_says_at_most_one_line_on_stderr(runs: dict[str, subprocess.CompletedProcess], name: str) -> None:
    lines = runs[name].stderr.splitlines()
    assert len(lines) <= 1, lines
    assert all("CPU" in line and "gloo" in line and "bandwidth" in line for line in lines)


def test_the_committed_log_is_one_of_the_lecture() -> None:
    log = (REPOSITORY / "var" / "traces" / "lecture_07_stdout.txt").read_text(encoding="utf-8")
    assert len(log.splitlines()) == 52
    check_log(log, AS_THE_LECTURE_SAYS)


def test_a_log_with_a_torn_line_or_a_wrong_value_is_noticed() -> None:
    log = (REPOSITORY / "var" / "traces" / "lecture_07_stdout.txt").read_text(encoding="utf-8")
    assert len(LINES) == 10
    with pytest.raises(ValueError, match="Not a line"):
        check_log(log.replace("]: tensor", "]: Rank 1 [after", 1), AS_THE_LECTURE_SAYS)
    with pytest.raises(AssertionError):
        check_log(log.replace("[ 6., 10., 14., 18.]", "[ 6., 10., 14., 19.]", 1), AS_THE_LECTURE_SAYS)
    with pytest.raises(AssertionError):
        check_log(log.split("\n", 1)[1], AS_THE_LECTURE_SAYS)
