"""Samplers: (graph, seed, index) -> subgraph, without torch and without ranks.

Subgraph number i is a function of the graph, the options, the seed and i alone, whoever draws it.
"""

from .graph_arrays import GraphArrays, InducedSampler, graph_arrays, induce
from .maker import Maker
from .node_samplers import Cluster, Edge, Frontier, Labor, Neighbour, Node, Walk, Whole
from .normalise import Coefficients, presample
from .operators import operators
from .pool import SamplerPool
from .registry import SAMPLERS, SamplerKind, UserSampler, check_options, make_sampler, options_of, register, sampler
from .sample import Csr, NormedBlock, Pattern, Sample, Sampler, Subgraph
from .targets import Targets

__all__ = [
    "SAMPLERS", "Cluster", "Coefficients", "Csr", "Edge", "Frontier", "GraphArrays", "InducedSampler", "Labor",
    "Maker", "Neighbour", "Node", "NormedBlock", "Pattern", "Sample", "Sampler", "SamplerKind", "SamplerPool",
    "Subgraph", "Targets", "UserSampler", "Walk", "Whole", "check_options", "graph_arrays", "induce",
    "make_sampler", "operators", "options_of", "presample", "register", "sampler",
]  # fmt: skip
