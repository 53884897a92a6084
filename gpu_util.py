"""What the lecture needs and does not teach: devices, starting the ranks, and what happens when one of them fails."""

import atexit
import importlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
rank that does not even react to SIGTERM, every run that got stuck ends within a minute."""

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
    traced = sys.gettrace() is not None  # nothing is measured then, and the trace is the same on every machine
    on_gpus = plan_run(world_size, torch.cuda.device_count()).backend == "nccl"
    return GPU_NUM_ELEMENTS if on_gpus and not traced else CPU_NUM_ELEMENTS


@cache
def notify(message: str) -> None:
    """Say `message` on stderr, once in a run."""
    print(message, file=sys.stderr, flush=True)


class DisableDistributed:
    """Context manager: inside it every function of `torch.distributed` does nothing and returns None."""

    depth = 0
    """How many of these contexts this process is in."""

    def __enter__(self) -> "DisableDistributed":
        # Looks into the module's dictionary, and at types only, as merely reading a deprecated attribute would warn.
        function_types = (types.FunctionType, types.BuiltinFunctionType)
        self.originals = {name: value for name, value in vars(dist).items() if type(value) in function_types}
        vars(dist).update(dict.fromkeys(self.originals, lambda *args, **kwargs: None))
        DisableDistributed.depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        DisableDistributed.depth -= 1
        vars(dist).update(self.originals)


def spawn(func: Callable[..., None], world_size: int, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Run `func(rank, world_size, *args, *kwargs.values())` in one process for each rank, and wait for all of them.

    Under a tracer, run it once, here, as rank 0, with communication switched off. Raises what
    `torch.multiprocessing.spawn` raises when a rank fails; no process outlives the call.
    """
    if sys.gettrace() is not None:
        if not _is_traced_by_edtrace():
            notify("Traced: only rank 0 runs, in this process, and nothing is communicated. This is not a real run.")
        _import_untraced("torch._dynamo")
        with DisableDistributed():
            func(0, world_size, *args, *kwargs.values())
        return
    plan = plan_run(world_size, torch.cuda.device_count())
    if plan.notice:
        notify(plan.notice)
    with _rendezvous(plan), _no_process_left():
        mp.spawn(func, args=(plan.world_size, *args, *kwargs.values()), nprocs=plan.world_size, join=True)


def _is_traced_by_edtrace() -> bool:
    """Whether the active tracer is edtrace, which shows what a trace is by itself."""
    code = getattr(sys.gettrace(), "__code__", None)
    return code is not None and code.co_filename.replace("\\", "/").endswith("edtrace/execute.py")


def _import_untraced(module: str) -> None:
    """Import a module at full speed, under a tracer too.

    The first optimizer imports torch._dynamo, which must find the functions of `torch.distributed` as they are.
    """
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
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=USE_LIBUV)
    variables = {STORE_PORT: str(store.port)}
    if plan.backend == "gloo":
        variables["CUDA_VISIBLE_DEVICES"] = ""  # every rank computes on the CPU, also where there is a GPU
        loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
        if loopback:  # else gloo looks up the hostname, which not every machine can resolve
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


def _end_ranks_that_hang(store: dist.TCPStore, world_size: int, finished: threading.Event) -> None:
    """Kill ranks that are past `report_rank_done` and still there a while later: nobody else would notice them."""
    keys = [f"left/{count}" for count in range(1, world_size + 1)]
    while not finished.wait(0.2):
        if store.check(keys) and not finished.wait(RANK_TIMEOUT.total_seconds()):
            for key in keys:
                try:
                    os.kill(int(store.get(key)), getattr(signal, "SIGKILL", signal.SIGTERM))
                except ProcessLookupError:
                    pass  # this one has ended properly
            return


def rank_device(rank: int) -> torch.device:
    """The device of rank `rank`: its own GPU, or the CPU."""
    return cuda_if_available(rank)


def prepare_rank(rank: int, world_size: int) -> dict[str, Any]:
    """Make this process ready to be rank `rank`; return its arguments for `torch.distributed.init_process_group`.

    With communication switched off there is nothing to prepare. Raises RuntimeError if nobody started this rank.
    """
    if DisableDistributed.depth:
        return {}
    if STORE_PORT not in os.environ:
        raise RuntimeError(f"Rank {rank} of {world_size} finds no other rank: start the ranks with spawn(...)")
    atexit.register(_leave_after_failure)
    if multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C also ends a rank that waits in a collective
        threading.Thread(target=_end_with_parent, daemon=True).start()
    # Each line that is printed reaches stdout in one write, whatever other ranks print at the same moment.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    torch.set_num_threads(max(1, _num_cores() // world_size))

    options = {"rank": rank, "world_size": world_size, "store": _join_store(), "timeout": RANK_TIMEOUT}
    device = rank_device(rank)
    if device.type == "cpu":
        return options | {"backend": "gloo"}
    torch.cuda.set_device(device)
    # Otherwise torch 2.13 warns of each send and receive that shares a communicator with collectives.
    os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
    return options | {"backend": "nccl", "device_id": device}


def _join_store() -> dist.TCPStore:
    """Connect to the store that `_rendezvous` holds in the process which started this rank."""
    port = int(os.environ[STORE_PORT])
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=RANK_TIMEOUT, use_libuv=USE_LIBUV)


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
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(FAILURE_DELAY)
    os._exit(1)


def report_rank_done() -> None:
    """Note that this rank has left its process group; from here on its process ends like any other."""
    if DisableDistributed.depth:
        return
    atexit.unregister(_leave_after_failure)
    store = _join_store()
    store.set(f"left/{store.add('num_left', 1)}", str(os.getpid()))
