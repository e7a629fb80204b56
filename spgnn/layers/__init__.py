"""Equations on an operator A. A layer never sees a rank.

Files of layers are imported when a name of theirs is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registry import CLASSES

if TYPE_CHECKING:  # what a type checker finds under these names
    # isort: off
    from .convolutions import GAT as GAT, GCN as GCN, GIN as GIN, SAGE as SAGE
    from .dense import MLP as MLP, NGNN as NGNN
    from .edge_layers import (
        EdgeDecoder as EdgeDecoder, EdgeEncoder as EdgeEncoder, EdgeMLP as EdgeMLP, GINE as GINE,
        GatedGCN as GatedGCN, NNConv as NNConv, PNA as PNA, Transformer as Transformer,
    )  # fmt: skip
    from .layer import ACTIVATIONS as ACTIVATIONS, Layer as Layer
    from .propagation import APPNP as APPNP, GCNII as GCNII, LightGCN as LightGCN, MixHop as MixHop, SGC as SGC
    from .registry import family as family
    from .relation_layers import HGT as HGT, RGAT as RGAT, RGCN as RGCN
    from .stack import Stack as Stack
    # isort: on

_HOME = CLASSES | {"ACTIVATIONS": "layer", "Layer": "layer", "Stack": "stack", "family": "registry"}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.layers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
