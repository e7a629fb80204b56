"""Modules that cannot be exact where a rank has some of the rows, each with its reason.

Modules are known by the names of their classes: PyG is not imported.
"""

from __future__ import annotations

from torch import nn

from ...errors import UsageError

TYPED = "it reads nodes of several types; a graph here has one"
ATTENDS = "each node attends to all nodes of the graph, which no rank has"
SAMPLES = "it draws edges or nodes by torch's random numbers, which differ between ranks"
PADS = "it pads the neighbours of a node to the largest degree, which differs between ranks"
COUNTS = "it has weights for each node, by number: a rank numbers its own rows"
SPARSE = "it reads a sparse matrix of torch_sparse, not an edge_index"
NEAREST = "it makes its own edges, from the nearest of all nodes"
DROPS = "it leaves out nodes by their rank among all nodes of the graph"
MESH = "its edges are rows of the input, each with 4 neighbours, not the edges of a graph of nodes"
CUGRAPH = "its kernels are cuGraph's, which read the graph themselves"
REFUSED = {
    **dict.fromkeys(("HeteroConv", "HGTConv", "HANConv", "HeteroDictLinear"), TYPED),
    **dict.fromkeys(("GPSConv", "SGFormer", "Polynormer", "MultiheadAttention", "PerformerAttention"), ATTENDS),
    **dict.fromkeys(("SuperGATConv", "DeepGraphInfomax", "MaskLabel", "RECT_L", "Node2Vec", "MetaPath2Vec"), SAMPLES),
    **dict.fromkeys(("LSTMAggregation", "GRUAggregation", "MLPAggregation", "SortAggregation", "Set2Set"), PADS),
    **dict.fromkeys(("SetTransformerAggregation", "GraphMultisetTransformer", "EquilibriumAggregation"), PADS),
    **dict.fromkeys(("LightGCN", "LINKX", "SignedGCN", "TGNMemory"), COUNTS),
    **dict.fromkeys(("PANConv",), SPARSE),
    **dict.fromkeys(("DynamicEdgeConv", "GravNetConv", "XConv"), NEAREST),
    **dict.fromkeys(("TopKPooling", "SAGPooling", "ASAPooling", "EdgePooling", "PANPooling", "GraphUNet"), DROPS),
    **dict.fromkeys(("MeshCNNConv",), MESH),
    **dict.fromkeys(("CuGraphModule",), CUGRAPH),
    "WLConv": "it numbers the colours of nodes in the order in which it meets them, which differs between ranks",
}


def check_module(module: nn.Module) -> None:
    """Raise UsageError where a module, or one in it, cannot run on a part of the rows."""
    for name, inner in module.named_modules():
        for cls in type(inner).__mro__:
            if cls.__name__ in REFUSED:
                where = f"{name}, a {type(inner).__name__}," if name else f"a {type(inner).__name__}"
                raise UsageError(f"{where} cannot be wrapped: {REFUSED[cls.__name__]}")
        for parameter in inner._parameters.values():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise UsageError(
                    f"{name or type(inner).__name__} has weights without a shape: give in_channels, not -1"
                )
