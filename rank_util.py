"""In a rank's process: where the ranks meet, and how the process begins and ends."""

import atexit
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from gpu_util import cuda_if_available, launched

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


def join_store(rank: int, world_size: int) -> dist.Store | None:
    """Make this process ready to be rank `rank`, and return the store in which the ranks find each other.

    None where communication is switched off. Raises RuntimeError if nobody started this rank.
    """
    if not _communicates():
        return None
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
    _prepare_gpu(cuda_if_available(rank))
    store = demo_store() if launch else _spawn_store()
    store.set(f"pid/{rank}", str(os.getpid()))
    return store


def report_rank_done() -> None:
    """Note that this rank has left its process group; from here on its process ends like any other."""
    if not _communicates():
        return
    atexit.unregister(_leave_after_failure)
    if not launched():
        _spawn_store().add("num_done", 1)


def _communicates() -> bool:
    """Whether communication is switched on: inside `DisableDistributed`, every function of `dist` returns None."""
    return dist.is_initialized() is not None


def _prepare_gpu(device: torch.device) -> None:
    """Make the rank's GPU, if it has one, the current one."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Otherwise torch 2.13 warns of each send and receive that shares a communicator with collectives.
        os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")


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


# In a process that a forkserver forked


class SameFile:
    """A file descriptor. Given to a forked process, it is open there under the same number, for the same file."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple:
        from multiprocessing.reduction import DupFd  # which Windows has not

        return _open_same_file, (self.number, DupFd(self.number))


def _open_same_file(number: int, duplicate: Any) -> SameFile:  # noqa: ANN401
    received = duplicate.detach()
    os.dup2(received, number)
    os.close(received)
    return SameFile(number)


def run_forked_rank(
    rank: int, environment: dict[str, str], files: list[SameFile], func: Callable[..., None], *args: object
) -> None:
    """Run `func` in a process like one that `mp.spawn` started: what is not the forkserver's own came with the call."""
    os.environ.clear()
    os.environ.update(environment)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    func(rank, *args)


# The store: of the process that spawned the ranks, or of the launcher


def loopback() -> str | None:
    """The loopback interface's name. Given it, gloo need not look up the hostname, which not every machine resolves."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)


@cache
def _spawn_store() -> dist.TCPStore:
    """Connect to the store which the process holds that started this rank, see `spawn_util.start_ranks`."""
    port = int(os.environ[STORE_PORT])
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=RANK_TIMEOUT, use_libuv=USE_LIBUV)


@cache
def _launcher_store() -> dist.Store:
    """The store that the launcher provides. All ranks have come when it returns."""
    launch = launched()
    if launch.local_world_size == launch.world_size and (interface := loopback()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
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


def start_next_demo() -> None:
    """Count the demos of a launched run."""
    global _num_demos
    _num_demos += 1


def demo_store() -> dist.Store:
    """A fresh part of the launcher's store for each demo, as joining twice through the same keys can hang."""
    return dist.PrefixStore(f"demo {_num_demos}", _launcher_store())
