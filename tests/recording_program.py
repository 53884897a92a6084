"""A small program of the shape that can be recorded: `main()` starts functions of this module on their ranks."""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

BIG = 2**20 + 1


def setup(rank: int, world_size: int, port: int) -> None:
    """Join the process group, and the cores' threads to one a rank."""
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, use_libuv=sys.platform != "win32")
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)


def say(text: str) -> None:
    """Print through a helper."""
    print(text)


def collectives(rank: int, world_size: int, port: int) -> None:
    """Every kind of collective, on tensors small and big."""
    setup(rank, world_size, port)
    data = torch.arange(world_size, dtype=torch.float32) + rank
    print(f"rank {rank}: {data.tolist()}")
    dist.all_reduce(tensor=data, op=dist.ReduceOp.SUM)
    print(f"rank {rank}: {data.tolist()}")

    numbers = torch.arange(world_size, dtype=torch.float32) * 10 + rank
    part = torch.empty(1)
    dist.reduce_scatter_single(output=part, input=numbers)
    gathered = [torch.zeros(1) for _ in range(world_size)]
    dist.all_gather(gathered, part)
    joined = torch.empty(world_size)
    dist.all_gather_single(
        output_tensor=joined,
        input_tensor=part,
    )
    from_root = torch.full((2,), float(rank + 1))
    dist.broadcast(from_root, src=1)

    big = torch.full((BIG,), float("nan"))
    dist.all_reduce(big)
    for repetition in range(2):
        say(f"rank {rank}: repetition {repetition}")
    del numbers
    dist.destroy_process_group()


def training(rank: int, world_size: int, port: int) -> None:
    """One data-parallel step, on rows that differ from rank to rank."""
    setup(rank, world_size, port)
    params = [nn.Parameter(torch.eye(2) * 0.5), nn.Parameter(torch.ones(2, 2))]
    optimizer = torch.optim.SGD(params, lr=0.1)
    x = torch.tensor([[1.0, 2.0]]) * (rank + 1)
    for param in params:
        x = x @ param
    loss = (x**2).mean()
    loss.backward()
    for param in params:
        dist.all_reduce(param.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    dist.destroy_process_group()


def pipeline(rank: int, world_size: int, port: int) -> None:
    """Each rank but the first receives, each but the last sends."""
    setup(rank, world_size, port)
    x = torch.zeros(3)
    if rank > 0:
        dist.recv(tensor=x, src=rank - 1)
    else:
        x = torch.tensor([float("inf"), -0.0, 0.1])
    if rank + 1 < world_size:
        dist.send(tensor=x, dst=rank + 1)
    dist.destroy_process_group()


def failing(rank: int, world_size: int, port: int) -> None:
    """Rank 1 raises, the other one waits for it."""
    setup(rank, world_size, port)
    if rank == 1:
        raise ZeroDivisionError("rank 1 divides by zero")
    dist.barrier()


def waiting(rank: int, world_size: int, port: int) -> None:
    """No rank ever ends."""
    setup(rank, world_size, port)
    print(f"rank {rank} is waiting")
    while True:
        time.sleep(0.1)


def start(program: object, world_size: int) -> None:
    """Run a per-rank program; the kernel picks the store's port."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.platform != "win32")
    if "lo" in [name for _, name in socket.if_nameindex()]:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mp.spawn(program, args=(world_size, store.port), nprocs=world_size, join=True)


def main() -> None:
    """The whole program."""
    other = {"failing": failing, "waiting": waiting}.get(os.environ.get("RECORDING_PROGRAM"))
    if other is not None:
        start(other, 2)
        return
    print("three programs")
    start(collectives, 3)
    start(training, 2)
    start(pipeline, 3)


if __name__ == "__main__":
    main()
