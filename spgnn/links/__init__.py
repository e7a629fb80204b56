"""Links: pairs of nodes that are scored, pairs without a link, the exact rank of each among all candidates, and scores."""

from ..layers.decoders import ComplEx, Decoder, DistMult, Dot, MLPScore
from .negatives import Negatives
from .ranks import Candidates, LinkRanks
from .scores import auc_and_ap, link_scores, recommender_scores

__all__ = [
    "Candidates", "ComplEx", "Decoder", "DistMult", "Dot", "LinkRanks", "MLPScore", "Negatives", "auc_and_ap", "link_scores",
    "recommender_scores",
]  # fmt: skip
