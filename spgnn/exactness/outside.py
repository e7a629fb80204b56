"""A wrapped module compared with itself outside of wrap: called with the edges of the whole graph, as PyG has them.

Shapes: N nodes, E edges, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..distgraph import distribute
from ..graph import Graph
from ..layers.foreign.wrap import Wrapped
from ..spmm.chains.dropout import NOTHING
from .compared import FLOOR
from .verification import Finding
from .watched import RankPass, Task
from .worlds import rows_of

WRAP = "wrap does not compute what the module itself does on the whole graph"


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """What a module is called with in one process: the attributes of a LocalGraph, as plain tensors."""

    edge_index: torch.Tensor
    edge_weight: torch.Tensor | None
    edge_attr: torch.Tensor | None
    batch: torch.Tensor
    num_nodes: int

    @classmethod
    def of(cls, graph: Graph) -> WholeGraph:
        """Return the edges column -> row of a graph."""
        edges = torch.from_numpy(np.stack([graph.A.indices, rows_of(graph)]).astype(np.int64))
        weights = None if (graph.A.data == 1).all() else torch.from_numpy(graph.A.data.astype(np.float64))
        attributes = None if graph.edge_attr is None else torch.from_numpy(graph.edge_attr.astype(np.float64))
        return cls(edges, weights, attributes, torch.zeros(graph.n_nodes, dtype=torch.int64), graph.n_nodes)

    @property
    def places(self) -> torch.Tensor:
        """The edge_index."""
        return self.edge_index

    def columns(self, H_NF: torch.Tensor) -> torch.Tensor:
        """Return H: every row is here."""
        return H_NF


class _NoDropout(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return (*args, kwargs.get("input"))[0] if func is functional.dropout else func(*args, **kwargs)


def outside(task: Task, one: RankPass) -> tuple[float | None, Finding | None]:
    """Return how far wrapped modules on one rank are from themselves outside of wrap, without dropout; and the first that is.

    None: the model has none. Args: one  the evaluation on one rank, whose inputs they get.
    """
    paths = [path for path, module in task.make().named_modules() if isinstance(module, Wrapped)]
    calls = [(path, one.by_key[path, 0]) for path in paths if (path, 0) in one.by_key]
    dgraph = distribute(task.graph, locality=False, threads=1, dtype=torch.float64, **task.options)
    whole, largest = WholeGraph.of(task.graph), None
    for path, call in calls:
        X_NF = call.inputs[0].value if call.inputs else _dense(task.graph)
        for is_training in (False, True):
            made = lambda path=path, mode=is_training: _module(task, path, mode)
            found = _run(X_NF, made(), lambda wrapped, X: wrapped(dgraph.A.at(None, False, "none", NOTHING), X))
            with _NoDropout():
                expected = _run(X_NF, made(), lambda wrapped, X: wrapped.called(whole, X))
            scales = [np.abs(of).max(initial=0) for of in expected]
            floor = FLOOR * max(scales[1:])
            sizes = [
                float(np.abs(a - b).max(initial=0) / (max(scale, floor * (place > 0)) or 1.0))
                for place, (a, b, scale) in enumerate(zip(found, expected, scales))
            ]
            largest = max(sizes if largest is None else [largest, *sizes])
            if max(sizes) > 1e-9:
                check = "evaluation" if sizes[0] > 1e-9 else "gradient"
                return largest, Finding(path, check, max(sizes), (1,), None, None, WRAP)
    return largest, None


def _dense(graph: Graph) -> np.ndarray:
    X = graph.X
    return (X if isinstance(X, np.ndarray) else X.toarray()).astype(np.float64)  # pyrefly: ignore[missing-attribute]


def _module(task: Task, path: str, is_training: bool) -> Wrapped:
    model = task.make().double()
    model.load_state_dict(task.state)
    found = model.get_submodule(path).train(is_training)
    assert isinstance(found, Wrapped)
    vars(found)["is_watched"] = True
    return found


def _run(X_NF: np.ndarray, wrapped: Wrapped, call: Callable[[Wrapped, torch.Tensor], torch.Tensor]) -> list[np.ndarray]:
    """Return the output, and the gradients of X and the weights of a function of all its numbers."""
    X = torch.tensor(X_NF).requires_grad_()
    Z = call(wrapped, X)
    torch.autograd.backward((Z * torch.cos(torch.arange(Z.numel())).view(Z.shape)).sum())
    return [
        Z.detach().numpy(),
        *(np.zeros(T.shape) if T.grad is None else T.grad.numpy() for T in (X, *wrapped.parameters())),
    ]
