"""Samplers: (graph, seed, index) -> subgraph, without torch and without ranks.

Subgraph number i is a function of the graph, the options, the seed and i alone, whoever draws it.
"""

from .sample import Csr, Operator, Pattern, Sample, Sampler, Subgraph

__all__ = ["Csr", "Operator", "Pattern", "Sample", "Sampler", "Subgraph"]
