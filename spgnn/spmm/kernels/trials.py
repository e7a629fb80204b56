"""Trials: of several ways to make a product, which all give the same bits, the one that is fastest here.

The first products of a kind are timed, in turns, and the fastest way stays. A matrix has trials of its own; matrices
that live for one product or two, such as those of subgraphs, share theirs. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

TRIALS = 3  # products of each way that are timed; the fastest counts, as the first finds nothing in a cache
GAIN = 0.97  # of the seconds of the first way, for another to stay


@dataclass(slots=True)
class Trials:
    """For each kind of product what its first ones took in each way, and the way that stays.

    A kind names all that seconds depend on, in proportion to the `work` of a product. The first of the ways is the one that
    stays unless another is clearly faster.
    """

    seconds: dict[Hashable, dict[str, list[float]]] = field(default_factory=dict)
    chosen: dict[Hashable, str] = field(default_factory=dict)

    def next_way(self, kind: Hashable, ways: tuple[str, ...]) -> str:
        """Return the way in which the next product of a kind is to be made."""
        if len(ways) == 1:
            return ways[0]
        if kind in self.chosen:
            return self.chosen[kind]
        took = self.seconds.setdefault(kind, {way: [] for way in ways})
        return min(ways, key=lambda way: len(took[way]))

    def took(self, kind: Hashable, way: str, seconds: float, work: float = 1.0) -> bool:
        """Note what a product took; return whether that was the last trial of its kind, and the way is chosen."""
        if kind not in self.seconds:
            return False
        trials = self.seconds[kind]
        trials[way].append(seconds / work)
        if min(map(len, trials.values())) < TRIALS:
            return False
        first, *others = trials
        best = min(others, key=lambda way: min(trials[way]))
        self.chosen[kind] = best if min(trials[best]) < GAIN * min(trials[first]) else first
        del self.seconds[kind]
        return True

    def uses(self, way: str) -> bool:
        """Return whether a kind has chosen a way, or has begun to try it."""
        return way in self.chosen.values() or any(trials.get(way) for trials in self.seconds.values())
