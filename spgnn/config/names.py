"""The names that options, files and keywords share, each list once."""

from __future__ import annotations

from typing import Literal, get_args

# What is predicted: one class per node, several labels of 0 and 1, numbers; or ranks of links.
Task = Literal["classes", "labels", "numbers", "links"]
On = Literal["nodes", "edges", "links"]  # whose labels a model predicts, or that themselves
NumberLoss = Literal["mse", "mae", "huber"]
Known = Literal["drop", "keep"]  # links of the graph among those that are predicted
LinkLoss = Literal["bce", "bpr", "softmax"]
NumberMetric = Literal["r2", "mae", "rmse", "relative_l2"]
RankedMetric = Literal["roc_auc", "average_precision"]  # of several labels
LinkMetric = Literal[
    "mrr", "mrr_optimistic", "mrr_pessimistic", "hits@1", "hits@3", "hits@10", "recall@20", "ndcg@20", RankedMetric
]
Metric = Literal["accuracy", "micro_f1", "macro_f1", "weighted_f1", RankedMetric, NumberMetric, LinkMetric]
LOWER = ("mae", "rmse", "relative_l2")  # metrics that are better the lower they are
# An edge u -> v is A[u, v]. in: v reads u, A'; out: u reads v, A; both: A or A'. Files and graphs have the longer names.
LongEdges = Literal["undirected", "directed", "reversed"]
Edges = Literal["auto", "both", "in", "out", LongEdges]
Duplicates = Literal["auto", "sum", "max", "mean", "refuse"]
Norm = Literal["gcn", "sym", "row", "none", "row_loops", "loops"]  # of the adjacency matrix
LayerNorm = Literal["none", "layer"]
Activation = Literal["relu", "elu", "gelu", "silu", "tanh", "sigmoid", "none"]
Attention = Literal["v1", "v2"]
Aggregator = Literal["mean", "sum", "gcn", "max"]
Combine = Literal["add", "cat"]
Jump = Literal["none", "cat", "max"]
Dtype = Literal["float32", "float64", "bfloat16"]
Order = Literal["auto", "spmm_first"]
Schedule = Literal["auto", "plain"]
Prune = Literal["auto", "always", "never"]
Scheme = Literal["cover", "columns", "broadcast", "two-tier"]
Wire = Literal["float32", "bfloat16", "float16"]
Device = Literal["cpu", "cuda"]
Evaluation = Literal["auto", "together", "layerwise"]  # of parts
Normalise = Literal["auto", "both", "loss", "aggregator", "none"]  # of subgraphs
Mode = Literal["full", "out-of-core", "average"]
Sync = Literal["weights", "gradients"]
Correction = Literal["none", "drift"]

EDGES = get_args(Edges)
SHORT_EDGES: dict[str, Edges] = {"undirected": "both", "directed": "out", "reversed": "in"}
LONG_EDGES: dict[str, LongEdges] = {
    "both": "undirected", "undirected": "undirected", "out": "directed", "directed": "directed", "in": "reversed",
    "reversed": "reversed",
}  # fmt: skip
NORMS = get_args(Norm)
LAYER_NORMS = get_args(LayerNorm)
ACTIVATIONS = get_args(Activation)
DTYPES = get_args(Dtype)
SCHEMES = get_args(Scheme)
SENDS_SUMS = ("cover", "two-tier")
WIRES = get_args(Wire)
ITEMSIZE = {"bfloat16": 2, "float32": 4, "float64": 8}  # bytes of a number of each Dtype

# The built-in families of models, samplers, partitioners and readers; users register more. The first two with their line
# of --help.
MODELS = {
    "gcn": "graph convolution",
    "sage": "a node, and the mean, sum or maximum of its neighbours",
    "gat": "neighbours weighted by attention; --heads divides --hidden",
    "gin": "sum of neighbours, then two dense layers",
    "mixhop": "several powers of A in each layer; --powers [2]",
    "sgc": "a power of A, then one matrix; --powers [as --layers]",
    "appnp": "dense layers, then steps back to their output; --powers [10]",
    "lightgcn": "mean of powers of A, no weights; for learned rows of nodes",
    "gcnii": "graph convolutions that return to the input, --layers deep",
    "ngnn": "graph convolutions, each with a dense layer inside",
    "mlp": "dense layers alone, without the graph",
    "meshgraphnet": "messages on edges that have attributes, --layers deep",
    "gine": "gin with attributes of edges",
    "transformer": "attention by keys and queries, with attributes of edges",
    "pna": "mean, max, min and deviation of messages, scaled by degree",
    "gatedgcn": "gates on edges that have attributes, --layers deep",
    "rgcn": "a matrix for each relation, the classes of edges",
    "rgat": "attention over the edges of all relations",
    "hgt": "attention by keys and queries of types and relations",
}
SAMPLERS = {
    "frontier": "walkers in proportion to degrees; --budget",
    "walk": "random walks; --budget --walk",
    "edge": "edges, those of few neighbours first; --budget",
    "node": "nodes in proportion to their column of A; --budget",
    "neighbour": "some neighbours of --batch targets per layer; --fanout",
    "labor": "as neighbour, fewer distinct rows; --fanout --batch",
    "cluster": "--batch parts of METIS at random, of 400 nodes each",
}
STREAMING = ("spring", "spring+", "dbh", "greedy", "hdrf", "2psl")
PARTITIONERS = ("metis", "volume", "entropy", *STREAMING, "block", "random")
FORMATS = (
    *("planetoid", "gnn-benchmark", "graphsaint", "ogb", "heterophilous", "triples", "tables"),
    *("interactions", "edges", "parquet", "mtx", "metis", "dimacs", "scipy", "binary", "native"),
    *("h5ad", "mesh"),
)
