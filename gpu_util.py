"""What the lecture needs and does not teach: devices, starting the ranks, and what happens when one of them fails."""

import atexit
import importlib
import inspect
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

GPU_NUM_ELEMENTS = 100 * 1024**2
CPU_NUM_ELEMENTS = 2**22
"""The smallest power of two whose all-reduce bus bandwidth is within 20 % of that at 2^24 elements (gloo, 4 ranks on
2 cores; `python tests/benchmark.py sizes` measures it again): larger transfers take longer and say the same."""

RANK_TIMEOUT = timedelta(seconds=25)
"""How long a rank waits for another one in a collective. With the 30 s that torch.multiprocessing.spawn then grants a
rank that does not even react to SIGTERM, every run that got stuck ends in about a minute."""

LAUNCH_TIMEOUT = timedelta(minutes=2)
"""Under a launcher: how long ranks wait for all to start, and for the end of a demo in which they take no part."""

FAILURE_DELAY = 0.5
"""Seconds between a rank's failure and its exit, see `_leave_after_failure`."""

STORE_PORT = "LECTURE_STORE_PORT"
"""The environment variable that tells a rank the port of the store in which the ranks find each other."""

USE_LIBUV = sys.platform != "win32"
"""Torch's wheels for Windows come without libuv, which a TCPStore takes otherwise."""

if not hasattr(dist, "reduce_scatter_single"):  # releases before 2.13 know these two by their former names only
    dist.reduce_scatter_single = dist.reduce_scatter_tensor
    dist.all_gather_single = dist.all_gather_into_tensor


def cuda_if_available(index: int = 0) -> torch.device:
    """`cuda:index` if this machine has that GPU, else `cpu`."""
    return torch.device(f"cuda:{index}" if index < torch.cuda.device_count() else "cpu")


@dataclass(frozen=True)
class RunPlan:
    """How many ranks run, with which backend, and what the user should know if that is not what was asked for."""

    backend: str
    world_size: int
    notice: str | None


def plan_run(world_size: int, num_gpus: int) -> RunPlan:
    """Plan a run of `world_size` ranks on a machine with `num_gpus` GPUs: NCCL wants one GPU for each rank."""
    if world_size < 1 or num_gpus < 0:
        raise ValueError(f"plan_run needs world_size >= 1 and num_gpus >= 0, got {world_size} and {num_gpus}")
    if num_gpus >= world_size:
        return RunPlan("nccl", world_size, None)
    if num_gpus >= 2:
        fewer = max(divisor for divisor in range(1, num_gpus + 1) if world_size % divisor == 0)
        if fewer >= 2:
            notice = f"{num_gpus} GPUs for {world_size} ranks: running {fewer} ranks on NCCL, one for each GPU."
        else:
            notice = f"{num_gpus} GPUs for {world_size} ranks, which no number of GPUs divides: running 1 rank on NCCL."
        return RunPlan("nccl", fewer, notice)
    found = "no GPU" if num_gpus == 0 else "one GPU, too few for NCCL"
    notice = f"Running on CPU with gloo ({found}): bandwidths are those of this machine's memory, not of GPU links."
    return RunPlan("gloo", world_size, notice)


def benchmark_num_elements(world_size: int) -> int:
    """How many float32 elements each of `world_size` ranks gives to a benchmark: few on CPUs, see CPU_NUM_ELEMENTS."""
    if sys.gettrace() is not None:  # nothing is measured then, and the trace is the same on every machine
        return CPU_NUM_ELEMENTS
    if launch := launched():
        on_gpus = rank_device(launch.rank).type == "cuda"
    else:
        on_gpus = plan_run(requested.world_size or world_size, torch.cuda.device_count()).backend == "nccl"
    return GPU_NUM_ELEMENTS if on_gpus else CPU_NUM_ELEMENTS


@dataclass
class Request:
    """What the command line asked for, see `lecture_util.run`."""

    world_size: int | None = None
    """Run every demo on this many ranks, where its sizes allow it."""

    sections: tuple[str, ...] = ()
    """Run these sections only. A demo of theirs that cannot run is an error then, and not a notice."""


requested = Request()


class DemoCannotRun(Exception):
    """The sizes of a demo that was asked for do not divide among the ranks."""


@dataclass(frozen=True)
class Launch:
    """What torchrun tells each process that it starts: https://docs.pytorch.org/docs/stable/elastic/run.html"""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def launched() -> Launch | None:
    """This process as a rank that a launcher such as torchrun has started, or None if nobody did.

    Raises ValueError if what the launcher tells are no numbers.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if any(name not in os.environ for name in (*names, "MASTER_ADDR", "MASTER_PORT")):
        return None
    try:
        return Launch(*(int(os.environ[name]) for name in names))
    except ValueError:
        told = ", ".join(f"{name}={os.environ[name]!r}" for name in names)
        raise ValueError(f"A launcher should set whole numbers, here are {told}: unset them, or use torchrun") from None


@cache
def notify(message: str | None) -> None:
    """Say `message`, if there is one, on stderr, once in a run: under a launcher, rank 0 says it."""
    launch = launched()
    if message and sys.stderr and (launch is None or launch.rank == 0):
        print(message, file=sys.stderr, flush=True)


class DisableDistributed:
    """Context manager: inside it every function of `torch.distributed` does nothing and returns None."""

    depth = 0
    """How many of these contexts this process is in."""

    def __init__(self) -> None:
        self.saved: list[dict[str, Any]] = []

    def __enter__(self) -> "DisableDistributed":
        _import_untraced("torch._dynamo")  # which must find the functions of torch.distributed as they are
        # Looks into the module's dictionary, and at types only, as merely reading a deprecated attribute would warn.
        function_types = (types.FunctionType, types.BuiltinFunctionType)
        originals = {name: value for name, value in vars(dist).items() if type(value) in function_types}
        self.saved.append(originals)
        vars(dist).update(dict.fromkeys(originals, lambda *args, **kwargs: None))
        DisableDistributed.depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        DisableDistributed.depth -= 1
        vars(dist).update(self.saved.pop())


def spawn(func: Callable[..., None], world_size: int, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Run `func(rank, world_size, *args, *kwargs.values())` in one process for each rank, and wait for all of them.

    Under a tracer, run it once, here, as rank 0, with communication switched off. Under a launcher, this process is a
    rank already and runs it itself. Raises what `torch.multiprocessing.spawn` raises when a rank fails; no process
    outlives the call.
    """
    if sys.gettrace() is not None:
        if not _is_traced_by_edtrace():
            notify("Traced: only rank 0 runs, in this process, and nothing is communicated. This is not a real run.")
        with DisableDistributed():
            func(0, world_size, *args, *kwargs.values())
        return
    if launch := launched():
        _run_as_launched(launch, func, world_size, (*args, *kwargs.values()))
        return
    plan = plan_run(requested.world_size or world_size, torch.cuda.device_count())
    if not requested.sections:  # else wait whether it can run: if not, that is all there is to say
        notify(plan.notice)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # else it tells how it ends each rank
    try:
        with _rendezvous(plan), _no_process_left():
            mp.spawn(func, args=(plan.world_size, *args, *kwargs.values()), nprocs=plan.world_size, join=True)
        notify(plan.notice)
    except mp.ProcessRaisedException as failure:
        reason = _why_sizes_do_not_divide(str(failure))
        if requested.world_size is None or reason is None:
            raise
        _leave_out(func, plan.world_size, reason)


def _run_as_launched(launch: Launch, func: Callable[..., None], world_size: int, args: tuple) -> None:
    """Run `func` on the first `world_size` launched ranks, or on all if there are fewer; the others wait.

    A benchmark, which is a program that takes `num_elements`, always runs on all of them: it measures their links.
    """
    if "num_elements" in inspect.signature(func).parameters:
        world_size = launch.world_size
    world_size = min(world_size, launch.world_size)
    if rank_device(launch.rank).type == "cpu":
        notify("Running on CPU with gloo: bandwidths are those of the machines' memory and network, not of GPU links.")
    _start_next_demo()
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
    store = _demo_store()
    if store.add("num_done", 1) == launch.world_size:
        store.set("all_done", "")
    store.wait(["all_done"], LAUNCH_TIMEOUT)


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


def _is_traced_by_edtrace() -> bool:
    """Whether the active tracer is edtrace, which shows what a trace is by itself."""
    code = getattr(sys.gettrace(), "__code__", None)
    return code is not None and code.co_filename.replace("\\", "/").endswith("edtrace/execute.py")


def _import_untraced(module: str) -> None:
    """Import a module at full speed, under a tracer too."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        importlib.import_module(module)
    finally:
        sys.settrace(tracer)


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
        if loopback := _loopback():
            variables["GLOO_SOCKET_IFNAME"] = loopback
    former = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    finished = threading.Event()
    watcher = threading.Thread(target=_end_ranks_that_hang, args=(store, plan.world_size, finished), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _loopback() -> str | None:
    """The loopback interface's name. Given it, gloo need not look up the hostname, which not every machine resolves."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)


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


def rank_device(rank: int) -> torch.device:
    """The device of rank `rank`: its own GPU, or the CPU. Under a launcher, a rank's GPU is that of its local rank."""
    launch = launched()
    if launch is None:
        return cuda_if_available(rank)
    has_gpu = launch.local_world_size <= torch.cuda.device_count()
    return cuda_if_available(launch.local_rank) if has_gpu else torch.device("cpu")


def prepare_rank(rank: int, world_size: int) -> dict[str, Any]:
    """Make this process ready to be rank `rank`; return its arguments for `torch.distributed.init_process_group`.

    With communication switched off there is nothing to prepare. Raises RuntimeError if nobody started this rank.
    """
    if DisableDistributed.depth:
        return {}
    launch = launched()
    if launch is None and STORE_PORT not in os.environ:
        raise RuntimeError(f"Rank {rank} of {world_size} finds no other: start the ranks with spawn(...) or torchrun")
    atexit.register(_leave_after_failure)
    if launch or multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C also ends a rank that waits in a collective
    if multiprocessing.parent_process():
        threading.Thread(target=_end_with_parent, daemon=True).start()
    # Each line that is printed reaches stdout in one write, whatever other ranks print at the same moment.
    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    torch.set_num_threads(max(1, _num_cores() // (launch.local_world_size if launch else world_size)))

    store = _demo_store() if launch else _spawn_store()
    store.set(f"pid/{rank}", str(os.getpid()))
    options = {"rank": rank, "world_size": world_size, "store": store, "timeout": RANK_TIMEOUT}
    device = rank_device(rank)
    if device.type == "cpu":
        return options | {"backend": "gloo"}
    torch.cuda.set_device(device)
    # Otherwise torch 2.13 warns of each send and receive that shares a communicator with collectives.
    os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
    return options | {"backend": "nccl", "device_id": device}


@cache
def _spawn_store() -> dist.TCPStore:
    """Connect to the store that `_rendezvous` holds in the process which started this rank."""
    port = int(os.environ[STORE_PORT])
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=RANK_TIMEOUT, use_libuv=USE_LIBUV)


@cache
def _launcher_store() -> dist.Store:
    """The store that the launcher provides. All ranks have come when it returns."""
    launch = launched()
    if launch.local_world_size == launch.world_size and (loopback := _loopback()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=LAUNCH_TIMEOUT))
        if store.add("num_started", 1) == launch.world_size:
            store.set("all_started", "")
        store.wait(["all_started"], LAUNCH_TIMEOUT)
    except dist.DistError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise TimeoutError(
            f"Rank {launch.rank} waited {LAUNCH_TIMEOUT.total_seconds():.0f} s at {where}, and not all of the "
            f"{launch.world_size} ranks came: see that each node runs the same command and reaches the others; "
            "if no launcher started this, unset RANK"
        ) from error
    return store


_num_demos = 0


def _start_next_demo() -> None:
    """Count the demos of a launched run."""
    global _num_demos
    _num_demos += 1


def _demo_store() -> dist.Store:
    """A fresh part of the launcher's store for each demo, as joining twice through the same keys can hang."""
    return dist.PrefixStore(f"demo {_num_demos}", _launcher_store())


def _num_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """Wait for the process that started this rank, and end with it."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _leave_after_failure() -> None:
    """End a rank that raised before `report_rank_done`.

    Its peers only notice when its connections close, which is when it ends. As they wait as long before they end, the
    process that started them sees the rank that failed first, and reports that one.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    if not launched():
        _spawn_store().add("num_failed", 1)
    time.sleep(FAILURE_DELAY)
    os._exit(1)


def report_rank_done() -> None:
    """Note that this rank has left its process group; from here on its process ends like any other."""
    if DisableDistributed.depth:
        return
    atexit.unregister(_leave_after_failure)
    if not launched():
        _spawn_store().add("num_done", 1)
