"""In the process that starts the ranks: what was asked for, what is said, and how the ranks are watched and ended."""

import importlib
import inspect
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from gpu_util import RunPlan, cuda_if_available, launched, plan_run
from rank_util import (
    FAILURE_DELAY,
    LAUNCH_TIMEOUT,
    RANK_TIMEOUT,
    STORE_PORT,
    USE_LIBUV,
    SameFile,
    demo_store,
    loopback,
    report_rank_done,
    run_forked_rank,
    start_next_demo,
)

GPU_NUM_ELEMENTS = 100 * 1024**2
CPU_NUM_ELEMENTS = 2**22
"""The smallest power of two whose all-reduce bus bandwidth is within 20 % of that at 2^24 elements (gloo, 4 ranks on
2 cores; `python tests/benchmark.py sizes` measures it again): larger transfers take longer and say the same."""

START_METHOD = "LECTURE_START"
"""The environment variable by which one asks for ranks that start from nothing, also on CPUs: LECTURE_START=spawn."""

EXIT_CODE_UNKNOWN = 255
"""What multiprocessing reports of a process whose forkserver was ended, as that alone would know."""

SERVER_MODULES = ["lecture_util", "server_util"]
"""What the forkserver imports once for all ranks: ours, and torch with them. Not the program itself: a rank runs its
file as under `mp.spawn`, and what that does at import, say ask for GPUs, the server never does."""


# What was asked for, and what is said


@dataclass
class Request:
    """What the command line asked for, see `lecture_util.run`."""

    world_size: int | None = None
    """Run every demo on this many ranks, where its sizes allow it."""

    sections: tuple[str, ...] = ()
    """Run these sections only. A demo of theirs that cannot run is an error then, and not a notice."""


requested = Request()


class DemoCannotRun(Exception):
    """A demo that was asked for cannot run as asked for; the message says why."""


@cache
def notify(message: str | None) -> None:
    """Say `message`, if there is one, on stderr, once in a run: under a launcher, rank 0 says it."""
    launch = launched()
    if message and sys.stderr and (launch is None or launch.rank == 0):
        print(message, file=sys.stderr, flush=True)


def _why_sizes_do_not_divide(failure: str) -> str | None:
    """What `int_divide` says, if `failure` is a traceback that ends there, else None."""
    match = re.search(r"in int_divide\n(?:.*\n)+?AssertionError: (.*)", failure)
    return match and match[1]


def _leave_out(func: Callable[..., None], world_size: int, reason: str) -> None:
    """Say that this demo is left out. Raises DemoCannotRun instead if the user asked for its section."""
    message = f"{func.__name__} cannot run on {world_size} ranks: {reason}"
    if requested.sections:
        raise DemoCannotRun(message)
    notify(message)


def plan_demo(world_size: int) -> RunPlan:
    """How a demo that the lecture runs on `world_size` ranks runs here."""
    return plan_run(requested.world_size or world_size, torch.cuda.device_count())


def benchmark_num_elements(world_size: int) -> int:
    """How many float32 elements each of `world_size` ranks gives to a benchmark: few on CPUs, see CPU_NUM_ELEMENTS."""
    if sys.gettrace() is not None:  # nothing is measured then, and the trace is the same on every machine
        return CPU_NUM_ELEMENTS
    if launch := launched():
        on_gpus = cuda_if_available(launch.rank).type == "cuda"
    else:
        on_gpus = plan_demo(world_size).backend == "nccl"
    return GPU_NUM_ELEMENTS if on_gpus else CPU_NUM_ELEMENTS


# Rank 0 alone, traced


def import_untraced(module: str) -> None:
    """Import a module at full speed, under a tracer too."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        importlib.import_module(module)
    finally:
        sys.settrace(tracer)


def say_that_only_rank_0_runs() -> None:
    """Under a tracer, say that this is no real run, unless the tracer is edtrace, whose page says it by itself."""
    code = getattr(sys.gettrace(), "__code__", None)
    if code is None or not code.co_filename.replace("\\", "/").endswith("edtrace/execute.py"):
        notify("Traced: only rank 0 runs, in this process, and nothing is communicated. This is not a real run.")


# A rank that a launcher has started


def run_launched_rank(func: Callable[..., None], world_size: int, args: tuple) -> None:
    """Run `func` on the first `world_size` launched ranks, or on all if there are fewer; the others wait.

    A benchmark, which is a program that takes `num_elements`, always runs on all of them: it measures their links.
    """
    launch = launched()
    if "num_elements" in inspect.signature(func).parameters:
        world_size = launch.world_size
    world_size = min(world_size, launch.world_size)
    if cuda_if_available(launch.rank).type == "cpu":
        notify("Running on CPU with gloo: bandwidths are those of the machines' memory and network, not of GPU links.")
    start_next_demo()
    if launch.rank < world_size:
        try:
            func(launch.rank, world_size, *args)
        except AssertionError:
            reason = _why_sizes_do_not_divide(traceback.format_exc())
            if reason is None:
                raise
            dist.barrier()  # every rank has come this far, and none leaves before the others have
            dist.destroy_process_group()
            report_rank_done()
            _leave_out(func, world_size, reason)
    # All ranks begin the next demo together, so that none of them waits in it while others are still in this one.
    store = demo_store()
    if store.add("num_done", 1) == launch.world_size:
        store.set("all_done", "")
    store.wait(["all_done"], LAUNCH_TIMEOUT)


# Ranks that this process starts


@contextmanager
def watched_ranks(func: Callable[..., None], world_size: int) -> Iterator[int]:
    """Inside it, the ranks of `func` find each other; at its end none is left, whatever ends it.

    Yields how many to start: with too few GPUs for `world_size`, fewer. Passes on what
    `torch.multiprocessing.spawn` raises when a rank fails, except where only the requested world size does not fit.
    """
    plan = plan_demo(world_size)
    if not requested.sections:  # else wait whether it can run: if not, that is all there is to say
        notify(plan.notice)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # else it tells how it ends each rank
    try:
        with _rendezvous(plan), _no_process_left(), _start_method(plan):
            yield plan.world_size
        notify(plan.notice)
    except mp.ProcessRaisedException as failure:
        reason = _why_sizes_do_not_divide(str(failure))
        if requested.world_size is None or reason is None:
            raise
        _leave_out(func, plan.world_size, reason)


@contextmanager
def _rendezvous(plan: RunPlan) -> Iterator[None]:
    """Hold the store in which the ranks find each other, and tell them by their environment where it is.

    The kernel picks a free port and this process listens on it all the time, so two runs never want the same one.
    """
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=RANK_TIMEOUT, use_libuv=USE_LIBUV
    )
    variables = {STORE_PORT: str(store.port)}
    if plan.backend == "gloo":
        variables["CUDA_VISIBLE_DEVICES"] = ""  # every rank computes on the CPU, also where there is a GPU
        if interface := loopback():
            variables["GLOO_SOCKET_IFNAME"] = interface
    finished = threading.Event()
    watcher = threading.Thread(target=_end_ranks_that_hang, args=(store, plan.world_size, finished), daemon=True)
    watcher.start()
    try:
        with _environment(variables):
            yield
    finally:
        finished.set()
        watcher.join()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Inside it, these environment variables are set; at its end they are as before."""
    former = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_process_left() -> Iterator[None]:
    """Whatever ends the block, also Ctrl-C: kill the processes that it started and did not end."""
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
            process.join()


killed_ranks: set[int] = set()
"""The ranks that this process had to kill, as they did not end by themselves."""


def _end_ranks_that_hang(store: dist.TCPStore, world_size: int, finished: threading.Event) -> None:
    """Kill ranks that are still there a while after one has failed, or after all are done.

    torch.multiprocessing.spawn waits for the latter for ever, and 30 s for one that does not react to SIGTERM.
    """
    while not finished.wait(0.2):
        if store.add("num_failed", 0):
            grace_period = FAILURE_DELAY + 3
        elif store.add("num_done", 0) == world_size:
            grace_period = RANK_TIMEOUT.total_seconds()
        else:
            continue
        if not finished.wait(grace_period):
            for rank in range(world_size):
                if store.check([f"pid/{rank}"]):
                    _kill(int(store.get(f"pid/{rank}")))
                    killed_ranks.add(rank)
        return


def _kill(pid: int) -> None:
    """End a process at once, if it has not ended by itself."""
    try:
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows, SIGTERM ends it as surely
    except OSError:
        pass


# Ranks that a forkserver forks


@contextmanager
def _start_method(plan: RunPlan) -> Iterator[None]:
    """Inside it, `mp.spawn` starts ranks in the fastest way that is safe here.

    A process that starts from nothing imports torch, which takes seconds. A forkserver imports it once, and forks ranks
    in milliseconds (https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods). `mp.spawn` has
    no argument for that; `start_processes`, which it calls, has one.
    """
    if not can_fork_ranks(plan.backend):
        yield
        return
    module = sys.modules[
        mp.ProcessContext.__module__
    ]  # torch.multiprocessing.spawn, a name that the function has taken
    original = module.start_processes
    module.start_processes = partial(_start_forked, original)
    try:
        yield
    finally:
        module.start_processes = original


def can_fork_ranks(backend: str) -> bool:
    """Whether ranks with this backend can be forked from a server here, and nobody asked for another way."""
    asked = os.environ.get(START_METHOD) or "forkserver"
    if asked not in ("forkserver", "spawn"):
        raise DemoCannotRun(f"{START_METHOD} is {asked!r}: set it to spawn, or unset it")
    return (
        asked == "forkserver"
        and backend == "gloo"  # CUDA is of no use in a process that is forked from one in which it is initialized
        and "forkserver" in multiprocessing.get_all_start_methods()  # which Windows has not
        and sys.platform != "darwin"  # Apple's frameworks, which torch computes with, may crash in a forked process
        and not (hasattr(sys, "ps1") or sys.flags.interactive)  # a server would wait for hours, with yesterday's code
    )


def fork_server_runs(modules: list[str] = SERVER_MODULES) -> bool:
    """Start a forkserver that imports these modules, if none runs, and say whether it forks; if not, why on stderr."""
    from multiprocessing import forkserver  # which Windows has not

    variables = {
        "PYTHONPATH": os.pathsep.join(sys.path),  # older releases than Python 3.13 look for modules nowhere else,
        "PYTHONSAFEPATH": "1",  # but first in the current directory
        "OPENBLAS_NUM_THREADS": "1",  # else numpy starts threads at its import, and a fork copies none of them
    }
    multiprocessing.set_forkserver_preload(modules)
    try:
        with _environment(variables), _interrupts_blocked():
            forkserver.ensure_running()
        _try_fork()
    except (OSError, EOFError) as error:
        notify(f"Ranks start in seconds, as no forkserver does: {type(error).__name__} {error}".rstrip())
        return False
    return True


@cache
def _try_fork() -> None:
    """Fork a process that does nothing, once in a run. Raises OSError or EOFError if the server does not."""
    process = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    process.start()
    process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C waits until the end of this block, and the server started in it leaves Ctrl-C to this process."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _start_forked(
    start_processes: Callable[..., mp.ProcessContext | None],
    fn: Callable[..., None],
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> mp.ProcessContext | None:
    """`start_processes`, with ranks forked from the server, if there is one, that have what started ones would have."""
    if not fork_server_runs():
        return start_processes(fn, args, nprocs, join, daemon, start_method)
    streams = [SameFile(stream.fileno()) for stream in (sys.__stdout__, sys.__stderr__) if stream]
    args = (dict(os.environ), streams, fn, *args)
    context = start_processes(run_forked_rank, args, nprocs, join=False, daemon=daemon, start_method="forkserver")
    if not join:
        return context
    try:
        while not context.join():
            pass
    except mp.ProcessExitedException as failure:
        if all(process.exitcode == EXIT_CODE_UNKNOWN for process in context.processes):
            raise DemoCannotRun(
                "the forkserver, from which the ranks came, was ended, and they with it: is memory short? "
                f"{START_METHOD}=spawn does without it"
            ) from failure
        raise
