"""Full-graph training: the loop, losses, scores, checkpoints and the files of a run."""

from importlib import import_module

_HOME = {
    "Trainer": "loop",
    "History": "history",
    "train": "loop",
    "explain": "explanation",
    "run": "session",
    "predict": "prediction",
}
__all__ = list(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.training' has no attribute {name!r}")
