"""Puts the steps of all ranks of a recorded call into one order that each rank's own order fits into.

Ranks that execute the same line in the same turn of the loops around it do so in one step, as far as communication
allows: what is received has been sent in an earlier step, or in this one. So a rank that waits for what another one
sends lags behind it, as the stages of a pipeline do.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

from ..record.recording import Call, Step
from .alignment import NEVER, NOT_NOW, Turn, loop_keys, loops_around

SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")
Message = tuple[int, int, int]
"""The n-th message from one rank to another: (source, destination, n)."""


@dataclass(frozen=True)
class MergedStep:
    """A line that ranks execute together, and where every rank is then."""

    line: int
    turns: tuple[Turn, ...]


@dataclass
class _Own:
    """A rank's step as the merge sees it; `place` are the loops around it with their turns, from the outermost."""

    key: tuple
    place: tuple[tuple[int, int], ...]
    sent: list[Message]
    received: list[Message]
    started: list[Message]
    is_collective: bool

    @property
    def passes_messages(self) -> bool:
        return bool(self.sent or self.received or self.started)


def merge(call: Call, source: str) -> list[MergedStep]:
    """The steps of `call`, whose program is in the file with that source."""
    merge = _Merge(call, source)
    merged = []
    while any(merge.heads()):
        line, ranks = merge.next_step()
        merged.append(MergedStep(line, merge.turns(ranks)))
    return merged


class _Merge:
    def __init__(self, call: Call, source: str) -> None:
        loops = loops_around(source)
        self.steps = [rank.steps for rank in call.ranks]
        self.own = [_own_steps(rank, notes.steps, loops) for rank, notes in enumerate(call.ranks)]
        self.index = [{own.key: number for number, own in enumerate(owns)} for owns in self.own]
        self.lines = [{step.line for step in rank.steps} for rank in call.ranks]
        self.passing = [_count_before(owns) for owns in self.own]
        self.passing_loops = [
            {header for own in owns if own.passes_messages for header, _ in own.place} for owns in self.own
        ]
        self.at = [0] * len(self.own)
        self.clock = [0] * len(self.own)
        self.arrival: dict[Message, int] = {}

    def heads(self) -> list[_Own | None]:
        """What each rank executes next; None for one that has ended."""
        return [owns[at] if at < len(owns) else None for owns, at in zip(self.own, self.at, strict=True)]

    def next_step(self) -> tuple[int, list[int]]:
        """The line of the next step and the ranks that execute it; these go on by one."""
        groups: dict[tuple, list[int]] = {}
        for rank, head in enumerate(self.heads()):
            if head:
                groups.setdefault(head.key, []).append(rank)
        # A recording of a run that ended has no deadlock, but a receive that was only started may come before its send.
        for strict, patient in ((2, True), (1, True), (2, False), (1, False), (0, False)):
            found = []
            for key, ranks in groups.items():
                ready = self._ready(ranks, strict)
                if ready and not (patient and self._awaits(key, ready)):
                    found.append((max(self.clock[rank] for rank in ready), key, ready))
            if found:
                break
        _, key, ranks = min(found)
        self._advance(ranks)
        return key[0], ranks

    def _ready(self, ranks: list[int], strict: int) -> list[int]:
        """Those of `ranks` that have been sent all that they receive now: with 2 also what they only start to."""
        sending = {message for rank in ranks for message in self._head(rank).sent}

        def arrived(messages: list[Message]) -> bool:
            return all(message in self.arrival or message in sending for message in messages)

        return [
            rank
            for rank in ranks
            if (strict < 1 or arrived(self._head(rank).received)) and (strict < 2 or arrived(self._head(rank).started))
        ]

    def _awaits(self, key: tuple, ready: list[int]) -> bool:
        """Whether a rank that is not `ready` yet should come to this step first, to execute it together with them."""
        for rank, head in enumerate(self.heads()):
            target = self.index[rank].get(key, -1)
            if rank in ready or head is None or target <= self.at[rank]:
                continue
            together = self.own[rank][target].is_collective
            # In a loop that passes messages, a rank is behind the one that sends to it; the sender does not wait.
            lags = _loop_where_ahead(self._head(ready[0]).place, head.place) in self.passing_loops[rank]
            independent = self.passing[rank][target] == self.passing[rank][self.at[rank]]
            waits = not independent and not self._ready([rank], 1)
            if together or not (lags or waits):
                return True
        return False

    def _head(self, rank: int) -> _Own:
        return self.own[rank][self.at[rank]]

    def _advance(self, ranks: list[int]) -> None:
        now = max(self.clock[rank] for rank in ranks)
        for rank in ranks:
            messages = self._head(rank).received + self._head(rank).started
            now = max([now, *(self.arrival.get(message, 0) for message in messages)])
        for rank in ranks:
            self.arrival.update(dict.fromkeys(self._head(rank).sent, now + 1))
            self.clock[rank] = now + 1
            self.at[rank] += 1

    def turns(self, ranks: list[int]) -> tuple[Turn, ...]:
        """Where every rank is once `ranks` have gone on."""
        (line,) = {self.steps[rank][self.at[rank] - 1].line for rank in ranks}
        return tuple(
            Turn(at - 1 if rank in ranks else NOT_NOW if line in self.lines[rank] else NEVER, at - 1)
            for rank, at in enumerate(self.at)
        )


def _own_steps(rank: int, steps: list[Step], loops: dict[int, tuple[int, ...]]) -> list[_Own]:
    headers = {header for around in loops.values() for header in around}
    number: dict[tuple[int, int], Counter] = defaultdict(Counter)
    result = []
    for step, key in zip(steps, loop_keys([step.line for step in steps], loops), strict=True):
        line, *turns = key
        around = (*loops.get(line, ()), line) if line in headers else loops.get(line, ())
        own = _Own(key, tuple(zip(around, turns, strict=False)), [], [], [], False)
        for item in step.communications:
            if item.operation in SENDS + RECEIVES and item.peer is not None:
                sends = item.operation in SENDS
                ends = (rank, item.peer) if sends else (item.peer, rank)
                message = (*ends, number[ends][sends])
                number[ends][sends] += 1
                (own.sent if sends else own.started if item.asynchronous else own.received).append(message)
            elif item.operation not in SENDS + RECEIVES:
                own.is_collective = True
        result.append(own)
    return result


def _count_before(owns: list[_Own]) -> list[int]:
    """For each step the number of steps before it that pass messages."""
    counts = [0]
    for own in owns:
        counts.append(counts[-1] + own.passes_messages)
    return counts


def _loop_where_ahead(place: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> int | None:
    """The loop that both are in, of which a rank at `place` is in a later turn than one at `other`, by its header."""
    for (header, turn), (other_header, other_turn) in zip(place, other, strict=False):
        if header != other_header or turn != other_turn:
            return header if header == other_header and turn > other_turn else None
    return None
