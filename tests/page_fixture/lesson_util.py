import sys
from collections.abc import Callable

from edtrace import link


def spawn(func: Callable, world_size: int, **kwargs: object) -> None:
    """As the lecture's: traced, rank 0 alone; else every rank, here one after the other."""
    for rank in range(1 if sys.gettrace() else world_size):
        func(rank, world_size, **kwargs)


def article_link(url: str) -> None:
    link(title=" [article]", url=url)
