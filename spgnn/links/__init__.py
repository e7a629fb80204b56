"""Links: pairs of nodes that are scored, pairs without a link, and the exact rank of each among all candidates."""

from .negatives import Negatives
from .ranks import Candidates, LinkRanks

__all__ = ["Candidates", "LinkRanks", "Negatives"]
