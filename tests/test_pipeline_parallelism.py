"""Pipeline parallelism on real ranks computes what the whole network does, one micro-batch after the other."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import QUICK, ProgramRun, RankError, RankPool, activations, random_data, random_weights

import lecture_07

WORLD_SIZES = [1, 2, 4]


def outputs(run: ProgramRun, num_layers: int, num_micro_batches: int) -> list[torch.Tensor]:
    """What a stage makes of each micro-batch: the result of the last of its layers."""
    layers = [event.returned for event in run.calls("gelu")]
    assert len(layers) == num_layers * num_micro_batches
    return layers[num_layers - 1 :: num_layers]


def assert_equals_whole_network(
    runs: list[ProgramRun], by_layer: list[torch.Tensor], num_micro_batches: int, tolerance: float
) -> None:
    """Each stage's micro-batches, in order, are the whole network's activations after the stage's last layer."""
    local = len(by_layer) // len(runs)
    for stage, run in enumerate(runs):
        micro_batches = outputs(run, local, num_micro_batches)
        expected = by_layer[(stage + 1) * local - 1].tensor_split(num_micro_batches)
        torch.testing.assert_close(micro_batches, list(expected), rtol=0, atol=tolerance)
        assert torch.equal(run.local_variables["x"], micro_batches[-1])


@settings(QUICK, max_examples=10)
@given(
    world_size=st.sampled_from(WORLD_SIZES),
    local_num_layers=st.integers(1, 3),
    micro_batch_size=st.integers(1, 3),
    num_micro_batches=st.integers(1, 5),
    num_dim=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_last_stages_micro_batches_are_the_network_applied_to_the_batch(
    world_size: int,
    local_num_layers: int,
    micro_batch_size: int,
    num_micro_batches: int,
    num_dim: int,
    seed: int,
    pool: RankPool,
) -> None:
    num_layers = world_size * local_num_layers
    data = random_data(seed, micro_batch_size * num_micro_batches, num_dim).float()
    weights = random_weights(seed + 1, num_layers, num_dim, num_dim)
    stages = [[weight.float() for weight in stage] for stage in weights.tensor_split(world_size)]
    args = (data, num_layers, num_micro_batches)
    runs = pool.run_program("pipeline_parallelism_main", world_size, *args, weights=stages)
    by_layer = [layer.float() for layer in activations(data.double(), weights)]
    # float32, as the program receives into float32: a sum of 8 products is off by at most 8 · 6e-8 of the sum of their
    # sizes, which stays below 100 here, in each of up to 12 layers.
    assert_equals_whole_network(runs, by_layer, num_micro_batches, tolerance=1e-5)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_with_the_lectures_own_parameters_too(world_size: int, pool: RankPool) -> None:
    data = random_data(3, 8, 12).float()
    weights = [lecture_07.get_init_params(12, 12, 0).detach().double() for _ in range(4)]
    runs = pool.run_program("pipeline_parallelism_main", world_size, data, 4, 4)
    by_layer = [layer.float() for layer in activations(data.double(), weights)]
    assert_equals_whole_network(runs, by_layer, 4, tolerance=1e-5)


@pytest.fixture(scope="module", params=WORLD_SIZES)
def stages(request: pytest.FixtureRequest, pool: RankPool) -> list[ProgramRun]:
    """Eight layers on all stages: a batch of 6, 5 wide, in three micro-batches."""
    weights = random_weights(6, 8, 5, 5).float().tensor_split(request.param)
    args = (random_data(7, 6, 5).float(), 8, 3)
    return pool.run_program("pipeline_parallelism_main", request.param, *args, weights=[list(each) for each in weights])


def test_sizes_are_those_of_the_batch_and_a_stages_share_of_the_layers(stages: list[ProgramRun]) -> None:
    expected = {"batch_size": 6, "num_dim": 5, "local_num_layers": 8 // len(stages), "micro_batch_size": 2}
    for run in stages:
        assert expected.items() <= run.local_variables.items()


def test_every_layer_is_made_for_its_rank(stages: list[ProgramRun]) -> None:
    for rank, run in enumerate(stages):
        assert [event.args for event in run.calls("get_init_params")] == [(5, 5, rank)] * (8 // len(stages))


def test_the_first_stage_cuts_the_data_and_the_others_receive_into_room_of_their_own(stages: list[ProgramRun]) -> None:
    assert torch.equal(torch.cat(stages[0].local_variables["micro_batches"]), random_data(7, 6, 5).float())
    for run in stages:
        assert torch.equal(run.local_variables["data"], random_data(7, 6, 5).float())
    for before, after in pairwise(stages):
        sent = [event.args[0] for event in before.calls("send")]
        assert all(map(torch.equal, after.local_variables["micro_batches"], sent))


def test_one_message_for_each_micro_batch_passes_between_neighbours(stages: list[ProgramRun]) -> None:
    last = len(stages) - 1
    for rank, run in enumerate(stages):
        receive = ["recv"] if rank > 0 else []
        layers = ["gelu"] * (8 // len(stages))
        send = ["print", "send"] if rank < last else []
        assert [event.name for event in run.events if event.name != "get_init_params"] == [
            "setup", *(receive + layers + send) * 3, "cleanup"
        ]  # fmt: skip
        assert run.events[0].args == (rank, len(stages))
        assert all(event.kwargs == {"src": rank - 1} for event in run.calls("recv"))
        assert all(event.kwargs == {"dst": rank + 1} for event in run.calls("send"))
        assert all(event.args[0].shape == (2, 5) for event in run.calls("recv", "send"))
        assert all(map(torch.equal, (event.args[0] for event in run.calls("send")), outputs(run, len(layers), 3)[:]))


def test_every_message_is_printed_before_it_is_sent(stages: list[ProgramRun]) -> None:
    for rank, run in enumerate(stages):
        firsts = [round(event.args[0][0, 0].item(), 4) for event in run.calls("send")]
        assert run.printed == [
            f"[pipeline_parallelism] Rank {rank}: sending 2x5[{first}...] to rank {rank + 1}" for first in firsts
        ]


@pytest.mark.parametrize(
    ("batch_size", "num_layers", "message"),
    [(4, 3, r"AssertionError: \D*3\D+2\b"), (5, 2, r"AssertionError: \D*5\D+4\b")],
    ids=["layers", "batch"],
)
def test_what_does_not_divide_is_refused(batch_size: int, num_layers: int, message: str, pool: RankPool) -> None:
    with pytest.raises(RankError, match=message):
        pool.run_program("pipeline_parallelism_main", 2, random_data(0, batch_size, 2), num_layers, 4)
