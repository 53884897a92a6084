"""Data parallelism on real ranks trains as one process does on the whole batch."""

import re
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import QUICK, ProgramRun, RankError, RankPool, activations, random_data, random_weights

import lecture_07

WORLD_SIZES = [1, 2, 4]
NUM_STEPS = 3


@dataclass
class Training:
    """Training in one process: for each step the loss, the gradients and the parameters after it."""

    losses: list[float]
    grads: list[list[torch.Tensor]]
    params: list[list[torch.Tensor]]


def train_alone(data: torch.Tensor, weights: list[torch.Tensor], num_steps: int = NUM_STEPS) -> Training:
    """The reference: one process, the whole batch, torch's AdamW with the lecture's learning rate."""
    params = [torch.nn.Parameter(weight.clone()) for weight in weights]
    optimizer = torch.optim.AdamW(params, lr=0.001)
    training = Training([], [], [])
    for _ in range(num_steps):
        loss = (activations(data, params)[-1] ** 2).sum() / data.numel()
        grads = torch.autograd.grad(loss, params)
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        optimizer.step()
        training.losses.append(loss.item())
        training.grads.append(list(grads))
        training.params.append([param.detach().clone() for param in params])
    return training


def losses(run: ProgramRun) -> list[float]:
    """The printed losses."""
    return [float(re.search(r"loss = (\S+),", line)[1]) for line in run.printed]


def train(pool: RankPool, world_size: int, data: torch.Tensor, weights: torch.Tensor, **options: object) -> list:
    """Train on real ranks, all of which begin with `weights`."""
    options = {"weights": [list(weights)] * world_size} | options
    return pool.run_program("data_parallelism_main", world_size, data, len(weights), NUM_STEPS, **options)


sizes = {
    "world_size": st.sampled_from(WORLD_SIZES),
    "local_batch_size": st.integers(1, 4),
    "num_dim": st.integers(1, 12),
    "num_layers": st.integers(1, 4),
    "seed": st.integers(0, 2**32 - 1),
}


@settings(QUICK, max_examples=8)
@given(**sizes)
def test_training_equals_one_process_on_the_whole_batch(
    world_size: int, local_batch_size: int, num_dim: int, num_layers: int, seed: int, pool: RankPool
) -> None:
    data = random_data(seed, world_size * local_batch_size, num_dim)
    weights = random_weights(seed + 1, num_layers, num_dim, num_dim)
    alone = train_alone(data, list(weights))
    runs = train(pool, world_size, data, weights)
    # In float64. Where a gradient is tiny by chance, AdamW's division by its size enlarges its rounding error.
    close = {"rtol": 0, "atol": 1e-9}
    for step in range(NUM_STEPS):
        mean = sum(losses(run)[step] for run in runs) / world_size
        assert mean == pytest.approx(alone.losses[step], rel=1e-12)
    for run in runs:
        reduced = [event.args_after[0] for event in run.calls("all_reduce")]
        torch.testing.assert_close(reduced, [grad for grads in alone.grads for grad in grads], **close)
        torch.testing.assert_close(run.local_variables["params"], alone.params[-1], **close)
        assert all(map(torch.equal, run.local_variables["params"], runs[0].local_variables["params"]))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_training_with_the_lectures_own_float32_parameters_equals_one_process(world_size: int, pool: RankPool) -> None:
    data = random_data(0, 16, 12).float()
    weights = [lecture_07.get_init_params(12, 12, 0).detach() for _ in range(4)]
    alone = train_alone(data, weights)
    runs = pool.run_program("data_parallelism_main", world_size, data, 4, NUM_STEPS)
    for run in runs:
        # AdamW moves a parameter by about lr = 1e-3 a step, however small its gradient: 1e-6 is a thousandth of that,
        # and far above float32's rounding (1e-7 of a parameter near 1, or of the quotient that makes a step).
        torch.testing.assert_close(run.local_variables["params"], alone.params[-1], rtol=0, atol=1e-6)
        assert all(map(torch.equal, run.local_variables["params"], runs[0].local_variables["params"]))
    mean = sum(losses(run)[-1] for run in runs) / world_size
    assert mean == pytest.approx(alone.losses[-1], rel=1e-6)


@pytest.fixture(scope="module")
def four(pool: RankPool) -> list[ProgramRun]:
    """Three steps of two layers on four ranks, two rows of the batch each."""
    return train(pool, 4, random_data(1, 8, 6), random_weights(2, 2, 6, 6))


def test_without_the_all_reduce_the_ranks_drift_apart(pool: RankPool) -> None:
    runs = train(pool, 4, random_data(1, 8, 6), random_weights(2, 2, 6, 6), disabled=["all_reduce"])
    for run in runs[1:]:
        for param, first in zip(run.local_variables["params"], runs[0].local_variables["params"], strict=True):
            assert (param - first).abs().max() > 1e-4


def test_losses_differ_from_rank_to_rank(four: list[ProgramRun]) -> None:
    for step in range(NUM_STEPS):
        assert len({losses(run)[step] for run in four}) == 4


def test_the_slices_side_by_side_are_the_batch(four: list[ProgramRun]) -> None:
    for rank, run in enumerate(four):
        expected = {"batch_size": 8, "num_dim": 6, "local_batch_size": 2, "start_index": 2 * rank}
        assert expected.items() <= run.local_variables.items()
        assert run.local_variables["end_index"] == 2 * rank + 2
    assert torch.equal(torch.cat([run.local_variables["data"] for run in four]), random_data(1, 8, 6))


def test_each_gradient_is_reduced_once_a_step_and_nothing_else_is_communicated(four: list[ProgramRun]) -> None:
    for rank, run in enumerate(four):
        communication = [event for event in run.events if event.name not in ("gelu", "get_init_params")]
        step = ["all_reduce", "all_reduce", "print"]
        assert [event.name for event in communication] == ["setup", *step * NUM_STEPS, "cleanup"]
        assert communication[0].args == (rank, 4)
        assert all(event.args[0].shape == (6, 6) for event in run.calls("all_reduce"))


def test_every_layer_is_made_for_its_rank(four: list[ProgramRun]) -> None:
    for rank, run in enumerate(four):
        assert [event.args for event in run.calls("get_init_params")] == [(6, 6, rank)] * 2


def test_each_step_prints_its_number_its_loss_and_the_parameters_after_it(four: list[ProgramRun]) -> None:
    alone = train_alone(random_data(1, 8, 6), list(random_weights(2, 2, 6, 6)))
    for rank, run in enumerate(four):
        assert len(run.printed) == NUM_STEPS
        for step, line in enumerate(run.printed):
            summaries = [f"6x6[{round(param[0, 0].item(), 4)}...]" for param in alone.params[step]]
            loss = losses(run)[step]
            assert line == f"[data_parallelism] Rank {rank}: step = {step}, loss = {loss}, params = {summaries}"
        assert losses(run)[-1] == run.local_variables["loss"].item()


def test_a_batch_that_does_not_divide_among_the_ranks_is_refused(pool: RankPool) -> None:
    with pytest.raises(RankError, match=r"AssertionError: \D*7\D+4\b"):
        pool.run_program("data_parallelism_main", 4, random_data(0, 7, 2), 1, 1)
