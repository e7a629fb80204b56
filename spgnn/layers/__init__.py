"""Equations on an operator A. A layer never sees a rank."""

from .gcn import GCN
from .layer import ACTIVATIONS, Layer
from .stack import Stack

__all__ = ["ACTIVATIONS", "GCN", "Layer", "Stack"]
