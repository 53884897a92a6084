"""The same file under torchrun, on one host and on two, and with the command line's options."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from log_lines import check_log

REPOSITORY = Path(__file__).resolve().parent.parent
LECTURE = str(REPOSITORY / "lecture_07.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# For each number of launched ranks: on how many each demo runs. 128 and 1024 do not divide by 3.
WORLD_SIZES = {
    1: {"collectives": 1, "benchmarks": 1, "data_parallelism": 1, "tensor_parallelism": 1, "pipeline_parallelism": 1},
    2: {"collectives": 2, "benchmarks": 2, "data_parallelism": 2, "tensor_parallelism": 2, "pipeline_parallelism": 2},
    3: {"collectives": 3, "benchmarks": 3, "pipeline_parallelism": 2},
    4: {"collectives": 4, "benchmarks": 4, "data_parallelism": 4, "tensor_parallelism": 4, "pipeline_parallelism": 2},
    8: {"collectives": 4, "benchmarks": 8, "data_parallelism": 4, "tensor_parallelism": 4, "pipeline_parallelism": 2},
}


def run_command(command: list[str], **environment: str) -> subprocess.CompletedProcess:
    """Run to the end, within bounds."""
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=200)


def without_launcher_lines(errors: str) -> list[str]:
    """What stderr says beyond the launcher's own warning about OMP_NUM_THREADS."""
    framed = ("OMP_NUM_THREADS", "*" * 41, "torch/distributed/run.py")
    return [line for line in errors.splitlines() if line.strip() and not any(text in line for text in framed)]


@pytest.mark.parametrize("num_ranks", WORLD_SIZES)
def test_torchrun_on_one_host(num_ranks: int) -> None:
    run = run_command([*TORCHRUN, "--nproc-per-node", str(num_ranks), LECTURE])
    assert run.returncode == 0, run.stderr
    check_log(run.stdout, WORLD_SIZES[num_ranks])
    notice, *rest = without_launcher_lines(run.stderr)
    assert "CPU" in notice and "gloo" in notice
    if num_ranks == 3:
        assert [line.split(":")[0] for line in rest] == [
            "data_parallelism_main cannot run on 3 ranks",
            "tensor_parallelism_main cannot run on 3 ranks",
        ], "each said once"
    else:
        assert rest == []


def test_the_command_line_takes_another_world_size() -> None:
    run = run_command([sys.executable, LECTURE, "--world-size", "2", "torch_distributed", "tensor_parallelism"])
    assert run.returncode == 0, run.stderr
    check_log(run.stdout, {"collectives": 2, "tensor_parallelism": 2})


def test_what_the_sizes_do_not_allow_is_left_out_and_said() -> None:
    run = run_command([sys.executable, LECTURE, "--world-size", "3"])
    assert run.returncode == 0, run.stderr
    check_log(run.stdout, {"collectives": 3, "benchmarks": 3})
    _, *skipped = run.stderr.splitlines()
    names = ("data_parallelism_main", "tensor_parallelism_main", "pipeline_parallelism_main")
    assert [line.split(":")[0] for line in skipped] == [f"{name} cannot run on 3 ranks" for name in names]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data_paralelism"], "data_paralelism"),
        (["--world-size", "0"], "at least 1, not 0"),
        (["--world-size", "two"], "'two'"),
        (["--world-size", "3", "data_parallelism"], "128 is not divisible by 3"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(arguments: list[str], message: str) -> None:
    run = run_command([sys.executable, LECTURE, *arguments])
    assert run.returncode == 2
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert message in line


def test_what_a_launcher_should_set_and_has_not_is_one_clear_line() -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    run = run_command([sys.executable, LECTURE], **dict.fromkeys(names, "abc"))
    assert (run.returncode, run.stdout) == (2, "")
    (line,) = run.stderr.splitlines()
    assert "RANK='abc'" in line


def test_a_log_that_nobody_reads_ends_the_run_in_one_line() -> None:
    command = [sys.executable, LECTURE, "torch_distributed"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.stdout.close()
    *_, line = process.stderr.read().splitlines()
    assert process.wait() == 1
    assert line == "Nobody reads the log any more, and the run ends."
    process.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="closes its stdout in a POSIX shell")
def test_without_a_stdout_it_runs_all_the_same() -> None:
    run = run_command(["sh", "-c", 'exec "$0" "$1" torch_distributed >&-', sys.executable, LECTURE])
    assert run.returncode == 0, run.stderr
    assert len(run.stderr.splitlines()) <= 1


def test_help_explains_sections_and_world_size() -> None:
    run = run_command([sys.executable, LECTURE, "--help"])
    assert run.returncode == 0
    assert all(word in run.stdout for word in ("--world-size", "SECTION", "benchmarking", "pipeline_parallelism"))


def test_a_section_without_a_demo_says_where_to_read_it() -> None:
    run = run_command([sys.executable, LECTURE, "hardware"])
    assert (run.returncode, run.stdout) == (0, "")
    (line,) = run.stderr.splitlines()
    assert "hardware" in line and "var/traces/lecture_07.html" in line


@contextmanager
def two_hosts() -> Iterator[dict[str, str]]:
    """Two network namespaces, joined by a pair of virtual Ethernet devices: their names and addresses."""
    hosts = {f"lecture{index}-{os.getpid()}": f"10.203.0.{index}" for index in (1, 2)}
    links = [f"lec{index}-{os.getpid()}"[:15] for index in (1, 2)]
    names = "".join(f"{address} {host}\n" for host, address in hosts.items())

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    try:
        for host in hosts:
            ip("netns", "add", host)
            settings = Path("/etc/netns", host)  # what `ip netns exec` shows there as /etc
            settings.mkdir(parents=True)
            (settings / "hosts").write_text(f"127.0.0.1 localhost\n{names}", encoding="utf-8")
        ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for link, (host, address) in zip(links, hosts.items(), strict=True):
            ip("link", "set", link, "netns", host, "name", "eth0")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True)
            shutil.rmtree(Path("/etc/netns", host), ignore_errors=True)


def start_on_hosts(hosts: dict[str, str], program: str, *options: str, **environment: str) -> list[subprocess.Popen]:
    """Start two ranks of the program on each host, which meet at the first one."""
    launcher = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", f"{next(iter(hosts))}:29500", *options, program]
    set_hostname = 'hostname "$1"; shift; exec "$@"'
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-ec", set_hostname, "sh", host, *launcher],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in hosts
    ]


def can_make_hosts() -> bool:
    """Whether this process may make network namespaces and connect them."""
    try:
        with two_hosts():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


needs_hosts = pytest.mark.skipif(
    not can_make_hosts(),
    reason="makes two hosts as network namespaces, for which it must be root on Linux with iproute2 installed",
)


@needs_hosts
def test_two_hosts_with_two_ranks_each() -> None:
    with two_hosts() as hosts:
        processes = start_on_hosts(hosts, LECTURE)
        outputs = [process.communicate(timeout=200) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    check_log("".join(log for log, _ in outputs), WORLD_SIZES[4])
    # Where no name server answers for these addresses, torch's sockets say so; that is not a notice of the lecture.
    said = [line for _, errors in outputs for line in without_launcher_lines(errors) if "[c10d]" not in line]
    assert len(said) == 1, "notices are rank 0's"


@needs_hosts
def test_a_rank_that_raises_ends_the_job_on_both_hosts() -> None:
    start = time.monotonic()
    with two_hosts() as hosts:
        program = str(Path(__file__).with_name("failing_program.py"))
        processes = start_on_hosts(hosts, program, FAILURE="raise")
        try:
            outputs = [process.communicate(timeout=100) for process in processes]
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
    assert all(process.returncode not in (0, None) for process in processes)
    assert "ValueError: invalid literal for int() with base 10: 'not a number'" in "".join(e for _, e in outputs)
    assert time.monotonic() - start < 90


@needs_hosts
def test_a_peer_that_never_comes_is_an_error_in_bounded_time() -> None:
    start = time.monotonic()
    with two_hosts() as hosts:
        first, second = start_on_hosts(hosts, LECTURE, "--rdzv-conf", "join_timeout=10")
        second.kill()
        second.communicate()
        _, errors = first.communicate(timeout=100)
    assert first.returncode not in (0, None)
    assert "RendezvousTimeoutError" in errors
    assert time.monotonic() - start < 60
