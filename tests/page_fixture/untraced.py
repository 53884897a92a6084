# ruff: noqa: F841  Variables are there to be looked at.
"""Per-rank programs that need real ranks: with communication switched off they fail, or edtrace cannot write them."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from edtrace import text
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    text("# What needs real ranks")
    start(batched)
    text("## Wrappers")
    start(wrapped)
    text("## Tensors of other kinds")
    wave = torch.tensor([1 + 2j])  # @inspect wave
    start(kinds)
    text("The end.")


def start(program: object) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.platform != "win32")
    if "lo" in [name for _, name in socket.if_nameindex()]:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mp.spawn(program, args=(2, store.port), nprocs=2, join=True)


def setup(rank: int, world_size: int, port: int) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, use_libuv=sys.platform != "win32")
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)


def batched(rank: int, world_size: int, port: int) -> None:
    setup(rank, world_size, port)
    mine, theirs = torch.tensor([10.0 + rank]), torch.zeros(1)
    other = 1 - rank
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)])
    for request in requests:
        request.wait()
    total = mine + theirs  # @inspect total
    dist.destroy_process_group()


def wrapped(rank: int, world_size: int, port: int) -> None:
    setup(rank, world_size, port)
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("replica",))
    index = mesh.get_local_rank()
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    model = DistributedDataParallel(layer)
    model(torch.tensor([[1.0 + 2 * rank]])).sum().backward()
    gradient = layer.weight.grad.item()
    dist.destroy_process_group()


def kinds(rank: int, world_size: int, port: int) -> None:
    sparse = torch.eye(2).to_sparse()  # @inspect sparse
    signal = torch.tensor([1j * rank])  # @inspect signal
    done = True


if __name__ == "__main__":
    main()
