"""Numbers of the two papers on SPRING, SDT-GNN and CATGNN (Huang et al.), as they print them.

Replication factors (Figure 6 of both), speed-ups (SDT-GNN's Figure 7) and memory (Figures 9 and 8) stand in pictures without
figures: of those, what the text says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters of the streaming clustering, and after merging; mean and deviation of their sizes."""

    before: int
    after: int
    size_before: str
    size_after: str


# SDT-GNN, Table II.
TABLE_2 = {
    "flickr": Clusters(10_201, 140, "9 ± 62", "638 ± 518"),
    "arxiv": Clusters(24_544, 250, "7 ± 77", "677 ± 1085"),
}
# SDT-GNN, Table III; CATGNN, Table 3: nodes, and edges counted in both directions.
TABLE_3 = {
    "citeseer": (3_327, 9_228),
    "cora": (2_708, 10_556),
    "chameleon": (2_227, 62_792),
    "pubmed": (19_717, 88_651),
    "coauthor_cs": (18_333, 163_788),
    "flickr": (89_250, 899_756),
    "arxiv": (169_343, 2_315_598),
}
# SDT-GNN, Table I; CATGNN, Table 1: raw graph data, and METIS's peak memory, GB.
TABLE_1 = {"arxiv": (0.03, 0.81)}

REDUCTION = (
    0.20  # SDT-GNN, section IV-B: of the replication factor by SPRING, mean over graphs, p and baselines ("about 20 %")
)
IMPROVEMENT = 0.50  # CATGNN, section 5.2: "the average improvement is about 50 %"
MOST_IMPROVEMENT = 3.0  # CATGNN, section 5.2: "up to 300 %", on PPI
MOST_SPEEDUP = 5.0  # SDT-GNN, section IV-B and Figure 7: "up to 5x", over 2PS-L, p = 4; above 1 over each baseline
LEAST_MEMORY = 0.97  # SDT-GNN, section IV-D and Figure 9: "up to 97 %" less than DistDGL (METIS, features loaded too)
MEMORY_FACTOR = 10  # CATGNN, section 5.4 and Figure 8: METIS "more than one order of magnitude" above SPRING
BALANCE = 1.05  # beta of both

BASELINES = ("dbh", "greedy", "hdrf", "2psl")
