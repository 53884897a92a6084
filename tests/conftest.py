"""Fixtures that several test modules share."""

import signal
from collections.abc import Iterator

import pytest
from ranks import RankPool

# A shell without job control starts what runs in the background with Ctrl-C ignored, and programs inherit that. The
# programs that the tests interrupt must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Four ranks for the whole session."""
    pool = RankPool()
    yield pool
    pool.close()
