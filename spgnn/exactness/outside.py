"""A wrapped module compared with itself outside of wrap: called with the edges of the whole graph, as PyG has them.

Shapes: N nodes, E edges, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..dist import SelfCommunicator
from ..distgraph import distribute
from ..errors import UsageError
from ..graph import Graph, GraphColumns, NodeTypes
from ..layers.foreign.typed_rows import TypedRows
from ..layers.foreign.wrap import Wrapped
from ..spmm.chains.dropout import NOTHING
from .compared import FLOOR, Finding
from .watched import RankPass, Task, rows_of

WRAP = "wrap does not compute what the module itself does on the whole graph"


def whole_graph(graph: Graph, X_NF: torch.Tensor) -> SimpleNamespace:
    """Return what a module is called with in one process: the attributes of a LocalGraph, as plain tensors."""
    index = torch.from_numpy(np.stack([graph.A.indices, rows_of(graph)]).astype(np.int64))
    weights = None if (graph.A.data == 1).all() else torch.from_numpy(graph.A.data.astype(np.float64))
    attributes = None if graph.edge_attr is None else torch.from_numpy(graph.edge_attr.astype(np.float64))
    relation_E, ids_E, y, typed = None, graph.edge_ids, graph.edge_y, {"joined": lambda out: out}
    if graph.typed_sizes[0] and ids_E is not None and y is not None:
        has_reverse, names = (ids_E < 0).any(), GraphColumns.of(graph).names
        relation_E = torch.from_numpy(y[np.where(ids_E < 0, -1 - ids_E, ids_E)] * (1 + has_reverse) + (ids_E < 0))
        with suppress(UsageError):  # of nodes without types
            way = 2 if has_reverse else 1 if graph.edges == "reversed" else -1
            rows = TypedRows(NodeTypes.read(graph.meta), names, np.arange(graph.n_nodes), way)
            first = torch.tensor(rows.types.starts)
            of_r = [index[:, relation_E == r] - first[[*rows.ends(r)]][:, None] for r in range(len(rows.triples))]
            typed = {
                "joined": rows.joined,
                "x_dict": rows.split(X_NF),
                "edge_index_dict": dict(zip(rows.triples, of_r)),
            }
    batch, columns = torch.zeros(graph.n_nodes, dtype=torch.int64), lambda H_NF: H_NF
    return SimpleNamespace(
        **typed,
        edge_index=index, places=index, edge_weight=weights, edge_attr=attributes, batch=batch, columns=columns, num_nodes=graph.n_nodes,
        edge_type=relation_E,
    )  # fmt: skip


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
    dgraph = distribute(task.graph, SelfCommunicator(), locality=False, threads=1, dtype=torch.float64, **task.options)
    largest = None
    for path, call in calls:
        X_NF = call.inputs[0].value if call.inputs else sp.csr_array(task.graph.X).toarray().astype(np.float64)
        for is_training in (False, True):
            made = lambda path=path, mode=is_training: _module(task, path, mode)
            found = _run(X_NF, made(), lambda wrapped, X: wrapped(dgraph.A.at(None, False, "none", NOTHING), X))
            try:
                with _NoDropout():
                    expected = _run(X_NF, made(), lambda wrapped, X: wrapped.called(whole_graph(task.graph, X), X))
            except Exception as error:  # it is what is reported
                text = f"outside of wrap it raises {type(error).__name__}: {error}"
                return largest, Finding(path, "error", np.inf, (1,), None, None, text)
            scales = [np.abs(of).max(initial=0) for of in expected]
            floor = FLOOR * max(scales[1:])
            sizes = [
                float(
                    np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0) / (max(scale, floor * (place > 0)) or 1.0)
                )
                for place, (a, b, scale) in enumerate(zip(found, expected, scales))
            ]
            largest = max(sizes if largest is None else [largest, *sizes])
            if max(sizes) > 1e-9:
                check = "evaluation" if sizes[0] > 1e-9 else "gradient"
                return largest, Finding(path, check, max(sizes), (1,), None, None, WRAP)
    return largest, None


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
    loss = (Z * torch.cos(torch.arange(Z.numel())).view(Z.shape)).sum()
    if loss.requires_grad:
        loss.backward()
    return [
        Z.detach().numpy(),
        *(np.zeros(T.shape) if T.grad is None else T.grad.numpy() for T in (X, *wrapped.parameters())),
    ]
