"""Links: pairs of nodes that are scored, and the exact rank of each among all candidates."""

from .ranks import Candidates, LinkRanks

__all__ = ["Candidates", "LinkRanks"]
