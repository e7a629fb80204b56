"""Full-graph training: the trainer, losses, scores."""

from importlib import import_module

_HOME = {"Trainer": "trainer", "History": "history", "explain": "explanation", "personalise": "parts.personal"}
__all__ = list(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.training' has no attribute {name!r}")
