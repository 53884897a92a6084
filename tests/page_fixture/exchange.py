# ruff: noqa: F841  Variables are there to be looked at.
"""Per-rank programs that differ from rank to rank: what a recording shows and a trace cannot."""

import os
import socket
import sys
from unittest.mock import Mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from edtrace import text


def main() -> None:
    text("# An exchange")
    print("before any rank")
    start(exchange, 2)
    for _ in range(2):
        start(alone, 1)


def start(program: object, world_size: int) -> None:
    """Traced: rank 0 alone, and nothing is communicated. Else every rank in a process of its own."""
    if sys.gettrace():
        for name in ("all_reduce", "all_gather", "send", "recv", "barrier", "destroy_process_group"):
            setattr(dist, name, Mock())
        program(0, world_size, 0)
        return
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.platform != "win32")
    if "lo" in [name for _, name in socket.if_nameindex()]:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mp.spawn(program, args=(world_size, store.port), nprocs=world_size, join=True)


def setup(rank: int, world_size: int, port: int) -> None:
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if port:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, use_libuv=sys.platform != "win32")
        dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)


def exchange(rank: int, world_size: int, port: int) -> None:
    setup(rank, world_size, port)  # @stepover
    data = torch.arange(4) + rank  # @inspect data
    print("alike")
    dist.all_reduce(data)
    print("alike")
    parts = [torch.empty(1, dtype=torch.int64) for _ in range(world_size)]  # @stepover
    mine = data[:1] * 10 + rank
    dist.all_gather(parts, mine)
    message = torch.empty(2)
    for turn in range(3):
        print(f"turn {turn}")
        if turn == rank:
            print(f"the turn of rank {rank}")
    if rank == 0:
        message = torch.tensor([1.5, 2.0])
        dist.send(message, dst=1)
    else:
        dist.recv(message, src=0)
    big = torch.ones(2**20 + 1)
    odd = [None, torch.device("cpu"), {(0, 1): torch.ones(100, dtype=torch.complex64)}, torch.tensor([2**62, -1])]
    dist.barrier()
    if rank == 0:
        print(f"{torch.full((2, 2), 7)} <b>")
    dist.destroy_process_group()


def alone(rank: int, world_size: int, port: int) -> None:
    print(f"nobody but rank {rank}")


if __name__ == "__main__":
    main()
