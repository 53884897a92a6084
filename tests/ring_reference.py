"""All-reduce around a ring of ranks, by its definition."""


def ring_all_reduce_sends(world_size: int) -> list[int]:
    """How many pieces, of `world_size` into which the data is cut, each rank sends in an all-reduce around a ring."""
    ranks = range(world_size)
    data = [[10**piece * (rank + 1) for piece in ranks] for rank in ranks]
    sums = [sum(pieces) for pieces in zip(*data, strict=True)]
    sent = [0] * world_size
    for phase in ("reduce-scatter", "all-gather"):
        for step in range(world_size - 1):
            shift = step if phase == "reduce-scatter" else step - 1  # rank r now passes on piece r - shift
            messages = [((rank - shift) % world_size, data[rank][(rank - shift) % world_size]) for rank in ranks]
            for rank in ranks:
                sent[rank] += 1
                piece, value = messages[rank - 1]
                data[rank][piece] = value + (data[rank][piece] if phase == "reduce-scatter" else 0)
        if phase == "reduce-scatter":
            assert all(data[rank][(rank + 1) % world_size] == sums[(rank + 1) % world_size] for rank in ranks)
    assert data == [sums] * world_size
    return sent
