"""Sparse times dense: local kernels, the own|ghost index map, exchange plans, operators, autograd.

`schedule`, `cost`, `machines` and `panels` import no torch; everything else here does, so it is imported when first used.
"""

from importlib import import_module

_HOME = {
    "BufferPool": "buffers",
    "LocalCSR": "local",
    "IndexMap": "indexmap",
    "ExchangePlan": "plan",
    "DistSpMM": "operator",
    "SpMM": "operator",
    "SparseRows": "rows",
    "DenseRows": "rows",
    "Wire": "wire",
    "dropout": "autograd",
    "plan_layers": "schedule",
    "LayerPlan": "schedule",
}
__all__ = list(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.spmm' has no attribute {name!r}")
