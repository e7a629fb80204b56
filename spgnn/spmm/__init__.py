"""Sparse times dense: local kernels, the own|ghost index map, exchange plans, operators, autograd. Imported when first used, as most of it imports torch."""

from importlib import import_module

_HOME = {
    "BufferPool": "kernels.buffers", "LocalCSR": "kernels.csr", "IndexMap": "exchange.index_map",
    "ExchangePlan": "exchange.exchange_plan", "DistSpMM": "operator.dist_spmm", "SpMM": "operator.protocol", "LayerView": "operator.view",
    "FeatureRows": "operator.feature_rows", "SubgraphOperators": "operator.subgraph", "SubgraphSpMM": "operator.subgraph",
    "SparseRows": "operator.features", "DenseRows": "operator.features", "Wire": "exchange.wire",
    "dropout": "chains.dropout", "on_this_thread": "chains.autograd",
}  # fmt: skip
__all__ = list(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.spmm' has no attribute {name!r}")
