"""A graph spread over ranks: every rank holds its own rows and reads the others' through the operator."""

from .distgraph import DistGraph
from .distribute import distribute
from .parts import Parts, merge_parts
from .snapshots import Fields

__all__ = ["DistGraph", "Fields", "Parts", "distribute", "merge_parts"]
