"""Sparse times dense: local kernels, the own|ghost index map, exchange plans, operators, autograd. Imported when first used, as most of it imports torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker finds under these names
    # isort: off
    from .chains.autograd import on_this_thread as on_this_thread
    from .chains.dropout import dropout as dropout
    from .exchange.exchange_plan import ExchangePlan as ExchangePlan
    from .exchange.index_map import IndexMap as IndexMap
    from .exchange.wire import Wire as Wire
    from .kernels.buffers import BufferPool as BufferPool
    from .kernels.csr import LocalCSR as LocalCSR
    from .operator.dist_spmm import DistSpMM as DistSpMM
    from .operator.facts import SpMM as SpMM
    from .operator.features import FeatureRows as FeatureRows
    from .operator.features import DenseRows as DenseRows, SparseRows as SparseRows
    from .operator.subgraph import SubgraphOperators as SubgraphOperators, SubgraphSpMM as SubgraphSpMM
    from .operator.view import LayerView as LayerView
    # isort: on

_HOME = {
    "BufferPool": "kernels.buffers", "LocalCSR": "kernels.csr", "IndexMap": "exchange.index_map",
    "ExchangePlan": "exchange.exchange_plan", "DistSpMM": "operator.dist_spmm", "SpMM": "operator.facts", "LayerView": "operator.view",
    "FeatureRows": "operator.features", "SubgraphOperators": "operator.subgraph", "SubgraphSpMM": "operator.subgraph",
    "SparseRows": "operator.features", "DenseRows": "operator.features", "Wire": "exchange.wire",
    "dropout": "chains.dropout", "on_this_thread": "chains.autograd",
}  # fmt: skip
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'spgnn.spmm' has no attribute {name!r}")
