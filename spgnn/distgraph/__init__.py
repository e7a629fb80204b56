"""A graph spread over ranks: every rank holds its own rows and reads the others' through the operator."""

from .distgraph import DistGraph
from .distribute import SCHEMES, distribute

__all__ = ["SCHEMES", "DistGraph", "distribute"]
