"""Equations on an operator A. A layer never sees a rank.

Files of layers are imported when a name of theirs is first used.
"""

from importlib import import_module

_HOME = {
    "ACTIVATIONS": "layer", "Layer": "layer", "Stack": "stack", "GCN": "gcn", "SAGE": "sage", "GAT": "gat",
    "GIN": "gin", "MixHop": "mixhop", "SGC": "propagation", "APPNP": "propagation", "GCNII": "propagation",
    "NGNN": "ngnn", "MLP": "mlp", "EdgeEncoder": "edge_mlp", "EdgeDecoder": "edge_mlp", "EdgeMLP": "edge_mlp",
    "GINE": "edge_layers", "NNConv": "edge_layers", "Transformer": "edge_layers", "PNA": "edge_layers",
    "GatedGCN": "edge_layers", "family": "registry",
}  # fmt: skip
__all__ = [*_HOME]


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.layers' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
