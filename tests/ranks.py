"""Real ranks for tests: four processes that are started once, and run per-rank programs and other jobs as one group.

A job is a function `job(rank, world_size, *args, **kwargs)` of a module that the processes can import. Each job runs in
a process group of its own (gloo), which it finds in place and need not leave.
"""

import multiprocessing
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from hypothesis import Phase, settings

import lecture_07
from rank_util import run_forked_rank
from spawn_util import SERVER_MODULES, can_fork_ranks, fork_server_runs

NUM_RANKS = 4
JOB_SECONDS = 45
"""A job that takes longer is stuck: with the sizes of these tests each takes a fraction of a second."""
START_SECONDS = 60
QUICK = settings(deadline=None, derandomize=True, phases=[Phase.generate])
"""For hypothesis: the same examples on every machine, and no search for smaller ones, as each may wait for long."""
GROUP_TIMEOUT = timedelta(seconds=20)
"""How long a rank waits for a peer in a collective; less than JOB_SECONDS, so that the rank itself says where."""


class RankError(Exception):
    """A rank raised. The message holds the tracebacks of all ranks that did, the first one first."""


class RankPool:
    """The processes. They start with the first job and end with `close`, or when the process that started them ends."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.processes: list[multiprocessing.Process] = []
        self.num_jobs = 0

    def run(self, job: Callable[..., Any], world_size: int, *args: object, **kwargs: object) -> list[Any]:
        """What the job returns on each of `world_size` ranks. Raises RankError if it raises, TimeoutError if stuck."""
        self._start()
        self.num_jobs += 1
        meeting_place = Path(self.folder.name, f"job{self.num_jobs}")  # never used twice, else joining can hang
        for rank, connection in enumerate(self.connections[:world_size]):
            connection.send_bytes(pickle.dumps((job, meeting_place, rank, world_size, args, kwargs)))
        results, errors = {}, []
        for rank, (returned, error) in self._answers(world_size, JOB_SECONDS):
            results[rank] = returned
            if error:
                errors.append(f"Rank {rank} of {world_size} in {job.__name__}:\n{error}")
        if errors:
            raise RankError("\n".join(errors))
        return [results[rank] for rank in range(world_size)]

    def run_program(self, name: str, world_size: int, *args: object, **options: object) -> "list[ProgramRun]":
        """Run a per-rank program of the lecture, see `run_program` below for the options."""
        return self.run(run_program, world_size, name, *args, **options)

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for process in self.processes:
            process.kill()
            process.join()
        for connection in self.connections:
            connection.close()
        if self.processes:
            self.folder.cleanup()
        self.processes, self.connections = [], []

    def _start(self) -> None:
        if self.processes:
            return
        context = _context()
        self.folder = TemporaryDirectory(ignore_cleanup_errors=True)
        with patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "", **_loopback()}):
            for rank in range(NUM_RANKS):
                here, there = context.Pipe()
                args = (rank, dict(os.environ), [], _serve, there)
                process = context.Process(target=run_forked_rank, args=args, name=f"rank {rank}", daemon=True)
                process.start()
                there.close()
                self.connections.append(here)
                self.processes.append(process)
        for _ in self._answers(NUM_RANKS, START_SECONDS):
            pass

    def _answers(self, world_size: int, seconds: float) -> Iterator[tuple[int, Any]]:
        """Each rank and its answer, as they come in."""
        ranks = {connection: rank for rank, connection in enumerate(self.connections[:world_size])}
        deadline = time.monotonic() + seconds
        while ranks:
            ready = wait(ranks, timeout=max(0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise TimeoutError(f"No answer within {seconds} s from rank(s) {sorted(ranks.values())}")
            for connection in ready:
                rank = ranks.pop(connection)
                try:
                    answer = pickle.loads(connection.recv_bytes())
                except EOFError:
                    self.close()
                    raise RankError(f"The process of rank {rank} has ended") from None
                yield rank, answer


def _context() -> multiprocessing.context.BaseContext:
    """How processes start: like the lecture's ranks, from a server that has imported this module once, if one can."""
    forked = can_fork_ranks("gloo") and fork_server_runs([*SERVER_MODULES, __name__])
    return multiprocessing.get_context("forkserver" if forked else "spawn")


def _loopback() -> dict[str, str]:
    """Let gloo use the loopback interface where it has a usual name, rather than look up the hostname."""
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": names[0]} if names else {}


def _serve(rank: int, connection: Connection) -> None:
    """Do one job after the other until the other end of the connection is closed."""
    torch.set_num_threads(1)
    connection.send_bytes(pickle.dumps("ready"))
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            job, meeting_place, rank, world_size, args, kwargs = pickle.loads(message)
            store = dist.FileStore(str(meeting_place), world_size)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=GROUP_TIMEOUT)
            try:
                dist.barrier()  # before all have joined, nobody may leave, not even by an exception
                answer = job(rank, world_size, *args, **kwargs), None
                dist.barrier()  # a job that communicates nothing ends sooner on one rank than on another
            finally:
                dist.destroy_process_group()
        except Exception:
            answer = None, traceback.format_exc()
        connection.send_bytes(pickle.dumps(answer))


# What a per-rank program did


@dataclass(frozen=True)
class Event:
    """A call that a per-rank program made. Tensors are copies."""

    name: str
    args: tuple
    """As they were before the call."""
    kwargs: dict[str, Any]
    args_after: tuple
    returned: object
    start: float
    """On the clock that all processes of the machine share, in seconds."""
    end: float


@dataclass
class ProgramRun:
    """What one rank did in a per-rank program."""

    events: list[Event] = field(default_factory=list)
    local_variables: dict[str, Any] = field(default_factory=dict)
    """At the end of the program: tensors, numbers, and lists of them."""
    lines: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """The lines executed, each with what kind of value each local variable held before."""

    def calls(self, *names: str) -> list[Event]:
        """The calls of these functions, in order."""
        return [event for event in self.events if event.name in names]

    @property
    def printed(self) -> list[str]:
        """The lines printed."""
        return [event.args[0] for event in self.calls("print")]


COMMUNICATION = (
    "all_reduce all_gather all_gather_single reduce_scatter_single barrier send recv isend irecv broadcast scatter "
    "gather reduce all_to_all all_to_all_single reduce_scatter"
).split()


def run_program(
    rank: int,
    world_size: int,
    name: str,
    *args: object,
    weights: list[list[torch.Tensor]] | None = None,
    delays: dict[tuple[int, str, int], float] | None = None,
    disabled: Iterable[str] = (),
    device: str = "cpu",
    clock: ModuleType | Any = time,  # noqa: ANN401
) -> ProgramRun:
    """Run the lecture's per-rank program `name` as this rank, in the process group that is there, and tell what it did.

    weights[rank][i] is what call i of `get_init_params` returns instead of what it would. After call i of a function on
    a rank, `delays[rank, function, i]` seconds pass. Functions in `disabled` do nothing. `device` is the rank's own.
    """
    run = ProgramRun()
    program = getattr(lecture_07, name)
    given = iter(weights[rank]) if weights else None

    def recorder(function_name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: object, **kwargs: object) -> object:
            occurrence = len(run.calls(function_name))
            before, start = snapshot(args), time.monotonic()
            returned = None if function_name in disabled else function(*args, **kwargs)
            seconds = (delays or {}).get((rank, function_name, occurrence), 0)
            if seconds:
                clock.sleep(seconds)
            end = time.monotonic()
            event = Event(function_name, before, snapshot(kwargs), snapshot(args), snapshot(returned), start, end)
            run.events.append(event)
            return returned

        return record

    def init_params(num_inputs: int, num_outputs: int, rank: int) -> torch.nn.Parameter:
        weight = next(given)
        assert weight.shape == (num_inputs, num_outputs), f"asked for {num_inputs}x{num_outputs}"
        return torch.nn.Parameter(weight)

    def own_device(asked: int) -> torch.device:
        assert asked == rank, f"rank {rank} asked for the device of rank {asked}"
        return torch.device(device)

    def leave() -> None:
        run.local_variables = snapshot({k: v for k, v in sys._getframe(2).f_locals.items() if _is_plain(v)})

    functions = [(dist, function_name, getattr(dist, function_name)) for function_name in COMMUNICATION]
    functions += [
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch.nn.functional, "gelu", torch.nn.functional.gelu),
        (lecture_07, "setup", lambda rank, world_size: None),
        (lecture_07, "cleanup", leave),
        (lecture_07, "get_init_params", init_params if weights else lecture_07.get_init_params),
        (lecture_07, "print", lambda text: None),
    ]
    with ExitStack() as patches:
        for owner, function_name, function in functions:
            patches.enter_context(patch.object(owner, function_name, recorder(function_name, function), create=True))
        stopwatch = type("Clock", (), {"perf_counter": staticmethod(recorder("perf_counter", clock.perf_counter))})
        patches.enter_context(patch.object(lecture_07, "time", stopwatch))
        patches.enter_context(patch.object(lecture_07, "cuda_if_available", own_device))
        patches.enter_context(lines_of(program, run.lines))
        program(rank, world_size, *args)
    return run


def run_alone(rank: int, world_size: int, name: str, *args: object, **options: object) -> ProgramRun:
    """Run a per-rank program in this process, with communication switched off."""
    with lecture_07.DisableDistributed():
        return run_program(rank, world_size, name, *args, **options)


class HandClock:
    """A clock that stands still until someone sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def lines_of(program: Callable[..., None], lines: list[tuple[int, dict[str, str]]]) -> Iterator[None]:
    """Append each line of `program` that is executed, and what its variables hold then."""

    def on_call(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return on_line if frame.f_code is program.__code__ else None

    def on_line(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "line":
            lines.append((frame.f_lineno, {name: kind_of(value) for name, value in frame.f_locals.items()}))
        return on_line

    former = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(former)


def kind_of(value: object) -> str:
    """What a value is, without the content of a tensor: whole numbers as they are, tensors by shape and dtype."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {[kind_of(item) for item in value]}"
    return str(value) if isinstance(value, int) else type(value).__name__


def snapshot(value: Any) -> Any:  # noqa: ANN401
    """A copy that can be sent to another process."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return type(value)(map(snapshot, value))
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return value if isinstance(value, int | float | str | None) else str(value)


def _is_plain(value: object) -> bool:
    """Whether `snapshot` keeps the value."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, torch.Tensor | int | float | str | None)


# A deep MLP in one process, the reference for all three ways to cut it


def random_weights(seed: int, *shape: int) -> torch.Tensor:
    """float64 weights of a stack of layers: with these, rounding is far below what any error in a program changes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5


def random_data(seed: int, batch_size: int, num_dim: int) -> torch.Tensor:
    """A float64 batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch_size, num_dim, generator=generator, dtype=torch.float64)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """x times the normal distribution's probability of a value below x (https://arxiv.org/abs/1606.08415)."""
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def activations(data: torch.Tensor, weights: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The activations after each layer of the dense network."""
    layers = [data]
    for weight in weights:
        layers.append(gelu(torch.einsum("bi,ij->bj", layers[-1], weight)))
    return layers[1:]
