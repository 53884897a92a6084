"""Fixtures that several test modules share."""

from collections.abc import Iterator

import pytest
from ranks import RankPool


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Four ranks for the whole session."""
    pool = RankPool()
    yield pool
    pool.close()
