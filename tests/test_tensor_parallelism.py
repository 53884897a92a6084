"""Tensor parallelism on real ranks computes what the dense network does whose weights are the shards side by side."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import QUICK, ProgramRun, RankError, RankPool, activations, random_data, random_weights

import lecture_07

WORLD_SIZES = [1, 2, 4]


def gathered_by_layer(run: ProgramRun) -> list[torch.Tensor]:
    """The activations that a rank gathers after each layer."""
    return [torch.cat(event.args_after[0], dim=1) for event in run.calls("all_gather")]


def given_shards(dense: torch.Tensor, world_size: int) -> list[list[torch.Tensor]]:
    """What `get_init_params` must return, by rank and layer, for the demo to compute with `dense`.

    Rank r rotates its columns by r, so they are given rotated back.
    """
    slices = np.split(dense.numpy(), world_size, axis=2)
    return [[torch.from_numpy(np.roll(layer, -rank, axis=1)) for layer in mine] for rank, mine in enumerate(slices)]


def assert_equals_dense(runs: list[ProgramRun], dense: list[torch.Tensor], tolerance: float) -> None:
    """Every rank has the activations of every layer, and all ranks the same bits."""
    for run in runs:
        torch.testing.assert_close(gathered_by_layer(run), dense, rtol=0, atol=tolerance)
        assert all(map(torch.equal, gathered_by_layer(run), gathered_by_layer(runs[0])))
        assert torch.equal(run.local_variables["x"], gathered_by_layer(run)[-1])


@settings(QUICK, max_examples=8)
@given(
    world_size=st.sampled_from(WORLD_SIZES),
    batch_size=st.integers(1, 8),
    local_num_dim=st.integers(1, 4),
    num_layers=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_activations_of_each_layer_equal_the_dense_networks(
    world_size: int, batch_size: int, local_num_dim: int, num_layers: int, seed: int, pool: RankPool
) -> None:
    num_dim = world_size * local_num_dim
    data = random_data(seed, batch_size, num_dim)
    dense = random_weights(seed + 1, num_layers, num_dim, num_dim)
    shards = given_shards(dense, world_size)
    runs = pool.run_program("tensor_parallelism_main", world_size, data, num_layers, weights=shards)
    assert_equals_dense(runs, activations(data, dense), tolerance=1e-12)  # float64


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_with_the_lectures_own_float32_parameters_too(world_size: int, pool: RankPool) -> None:
    data = random_data(3, 8, 12).float()
    dense = []
    for _ in range(4):
        shard = lecture_07.get_init_params(12, 12 // world_size, 0).detach().numpy()  # which all ranks start from
        rotated = [np.roll(shard, rank, axis=1) for rank in range(world_size)]
        dense.append(torch.from_numpy(np.concatenate(rotated, axis=1)).double())
    runs = pool.run_program("tensor_parallelism_main", world_size, data, 4)
    expected = activations(data.double(), dense)
    # A sum of 12 products in float32 is off by at most 12 · 6e-8 of the sum of their sizes, in each of 4 layers.
    scale = max(layer.abs().max().item() for layer in expected)
    assert_equals_dense(runs, [layer.float() for layer in expected], tolerance=1e-5 * scale)


@pytest.fixture(scope="module")
def four(pool: RankPool) -> list[ProgramRun]:
    """Three layers on four ranks: a batch of 5, 8 wide, 2 columns a rank."""
    shards = given_shards(random_weights(4, 3, 8, 8), 4)
    return pool.run_program("tensor_parallelism_main", 4, random_data(5, 5, 8), 3, weights=shards)


def test_sizes_are_those_of_the_whole_batch_and_a_slice_of_the_width(four: list[ProgramRun]) -> None:
    for run in four:
        assert {"batch_size": 5, "num_dim": 8, "local_num_dim": 2}.items() <= run.local_variables.items()
        assert torch.equal(run.local_variables["data"], random_data(5, 5, 8))


def test_every_shard_is_made_for_its_rank(four: list[ProgramRun]) -> None:
    for rank, run in enumerate(four):
        assert [event.args for event in run.calls("get_init_params")] == [(8, 2, rank)] * 3


def test_each_layer_gathers_once_a_slice_of_the_width_from_each_rank(four: list[ProgramRun]) -> None:
    for rank, run in enumerate(four):
        layer = ["gelu", "all_gather"]
        assert [event.name for event in run.events if event.name != "get_init_params"] == [
            "setup", *layer * 3, "print", "cleanup"
        ]  # fmt: skip
        assert run.events[0].args == (rank, 4)
        for event in run.calls("all_gather"):
            room, mine = event.args
            assert [tuple(slot.shape) for slot in room] == [(5, 2)] * 4
            assert mine.numel() == run.local_variables["batch_size"] * run.local_variables["local_num_dim"]
            assert torch.equal(event.args_after[0][rank], mine), "rank r's slice is slice r"


def test_every_rank_prints_the_final_activations(four: list[ProgramRun]) -> None:
    final = activations(random_data(5, 5, 8), random_weights(4, 3, 8, 8))[-1]
    for rank, run in enumerate(four):
        summary = f"5x8[{round(final[0, 0].item(), 4)}...]"
        assert run.printed == [f"[tensor_parallelism] Rank {rank}: forward pass produced activations {summary}"]


def test_a_width_that_does_not_divide_among_the_ranks_is_refused(pool: RankPool) -> None:
    with pytest.raises(RankError, match=r"AssertionError: \D*6\D+4\b"):
        pool.run_program("tensor_parallelism_main", 4, random_data(0, 2, 6), 1)


def test_no_two_ranks_gather_equal_slices_of_the_lectures_own_parameters(pool: RankPool) -> None:
    for run in pool.run_program("tensor_parallelism_main", 4, random_data(3, 8, 32).float(), 2):
        for event in run.calls("all_gather"):
            slices = event.args_after[0]
            assert not any(torch.equal(slices[a], slices[b]) for a in range(4) for b in range(a))
