"""Equations on an operator A. A layer never sees a rank.

Files of layers are imported when a name of theirs is first used.
"""

from importlib import import_module

from .registry import CLASSES

_HOME = CLASSES | {"ACTIVATIONS": "layer", "Layer": "layer", "Stack": "stack", "family": "registry"}
__all__ = [*_HOME]


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.layers' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
