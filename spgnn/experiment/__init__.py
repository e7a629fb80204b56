"""A run and its folder: train from a GRAPH and options, predict, checkpoints, observers."""

from importlib import import_module

_HOME = {"run": "train", "resume": "train", "predict": "prediction", "save_run": "predictions", "Checkpoints": "saving"}
__all__ = list(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.experiment' has no attribute {name!r}")
