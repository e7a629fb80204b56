"""One pass of a model on the ranks of a world, with what every call of a module reads and returns; random worlds.

Shapes: N nodes, n own rows, E nonzeros of a rank, t own and ghost columns, R rows of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..config import TrainConfig, build
from ..dist import Communicator, run_threads
from ..distgraph import DistGraph, distribute
from ..errors import GraphError, ShapeError, UsageError
from ..graph import Graph
from ..layers.decoders import decoder_of
from ..layers.foreign.wrap import Wrapped
from ..layers.layer import width_of
from ..layers.stack import layers_of, set_epoch
from ..links.objective import Objective
from ..spmm.chains.autograd import on_this_thread
from ..spmm.operator.protocol import SpMM

EPOCH = 1  # of dropout in the training pass
Tree = Any  # what a module may read or return: a tensor, or lists, tuples and dicts of them
Key = tuple[str, int]  # path of a module, and how often it was called before: of one call, on any rank
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (Z, y) -> sum over rows with a label


@dataclass(frozen=True)
class World:
    """Thread ranks, and which owns which node; replication: c of 1.5D, with an owner for each of ranks / c block rows."""

    ranks: int
    owner_N: np.ndarray
    replication: int = 1


ONE = World(1, np.empty(0, np.int32))


@dataclass(frozen=True)
class Shift:
    """What is added to the rows of a tensor of one call, to see what depends on them.

    call   key of the call; place: the number of the tensor in the inputs or, is_output, in the outputs.
    delta  (ids of the nodes of the rows, shape) -> what is added.
    """

    call: Key
    place: int
    is_output: bool
    delta: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Task:
    """What every rank runs: a model, drawn alike on all, on a graph; is_training: a training pass, else an evaluation.

    make     () -> the model; state: the weights and buffers that all ranks take.
    graph    its links, if any, are targets; loss  None: a fixed linear function of all rows, of links bce.
    options  of distribute.
    """

    make: Callable[[], torch.nn.Module]
    state: dict[str, torch.Tensor]
    graph: Graph
    loss: Loss | str | None
    seed: int
    options: dict[str, Any]
    is_training: bool = False
    shift: Shift | None = None


@dataclass(eq=False)
class Rows:
    """A tensor of a call on one rank: its values, and in a training pass the gradient of the loss by them.

    edges  within a wrapped module the edges that its rows may be, row * N + column of each, in their order; else None.
    """

    value: np.ndarray
    gradient: np.ndarray | None = None
    edges: list[np.ndarray] | None = None

    def keep_gradient(self, G: torch.Tensor | None) -> None:
        """Keep a copy of a gradient, which a custom backward may leave out."""
        self.gradient = None if G is None else G.detach().clone().numpy()


@dataclass(eq=False)
class Call:
    """One call of a module on one rank, within the call of its parent.

    number, end  its place in the order in which calls began and ended: other ranks may have others.
    """

    key: Key
    number: int
    parent: int | None
    inputs: list[Rows] = field(default_factory=list)
    outputs: list[Rows] = field(default_factory=list)
    end: int = -1

    @property
    def path(self) -> str:
        """Which module it is, as named_modules has it."""
        return self.key[0]


@dataclass(frozen=True, eq=False)
class RankPass:
    """What one rank did.

    own_n     original ids of its own nodes; nonzeros: {E: row * N + column of each} of operators of E nonzeros.
    columns   t of the operators that it met; is_counted: False for rows that another rank counts.
    """

    calls: list[Call]
    own_n: np.ndarray
    nonzeros: dict[int, np.ndarray]
    columns: frozenset[int]
    is_counted: bool
    loss: float
    labelled: int
    gradients: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]

    @property
    def by_key(self) -> dict[Key, Call]:
        """The calls by their keys, which are the same on all ranks."""
        return {call.key: call for call in self.calls}


class Watch:
    """Hooks on all modules of a model: every call, the tensors that it got and returned, and their gradients."""

    def __init__(self, model: torch.nn.Module, n_nodes: int, shift: Shift | None):
        self.calls: list[Call] = []
        self.open: list[Call] = []
        self.nonzeros: dict[int, np.ndarray] = {}
        self.columns: set[int] = set()
        self.own_n, self.is_on = np.empty(0, np.int64), True
        self.n_nodes, self.shift, self._ends = n_nodes, shift, 0
        self.wrapped = [module for module in model.modules() if isinstance(module, Wrapped)]
        for module in self.wrapped:
            vars(module)["is_watched"] = True
        for path, module in model.named_modules():
            module.register_forward_pre_hook(self._before(path), with_kwargs=True)
            module.register_forward_hook(self._after, with_kwargs=True)

    def meet(self, A: SpMM) -> None:
        """Note which rows and nonzeros an operator has on this rank."""
        self.columns.add(len(A.column_ids))
        keys = []
        for block in A.column_blocks:
            csr = block.A.to_scipy().tocoo()
            keys.append(A.out_ids[csr.row] * self.n_nodes + block.ids_c[csr.col])
        self.nonzeros.setdefault(sum(map(len, keys)), np.concatenate(keys))

    def _before(self, path: str) -> Callable[[torch.nn.Module, Tree, Tree], tuple[Tree, Tree] | None]:
        def hook(module: torch.nn.Module, args: Tree, kwargs: Tree) -> tuple[Tree, Tree] | None:
            if not self.is_on:  # a backward that computes a module again
                return None
            key = path, sum(call.path == path for call in self.calls)
            call = Call(key, len(self.calls), self.open[-1].number if self.open else None)
            for A in (*args, *kwargs.values()):
                if hasattr(A, "column_blocks") and not torch.is_tensor(A):
                    self.meet(A)
            self.calls.append(call)
            self.open.append(call)
            return self._noted(args, call, False), self._noted(kwargs, call, False)

        return hook

    def _after(self, module: torch.nn.Module, args: Tree, kwargs: Tree, output: Tree) -> Tree:
        if not self.is_on:
            return None
        call = self.open.pop()
        call.end, self._ends = self._ends, self._ends + 1
        return self._noted(output, call, True)

    def _noted(self, tree: Tree, call: Call, is_output: bool) -> Tree:
        """Return arguments or results whose tensors are noted; of inputs a view, so that its gradient is this call's alone."""
        if type(tree) in (list, tuple):
            return type(tree)(self._noted(branch, call, is_output) for branch in tree)
        if type(tree) is dict:
            return {key: self._noted(branch, call, is_output) for key, branch in tree.items()}
        if not torch.is_tensor(tree) or not tree.is_floating_point() or tree.ndim == 0:
            return tree
        into = call.outputs if is_output else call.inputs
        tree = self._shifted(tree, (call.key, len(into), is_output))
        rows = Rows(tree.detach().clone().numpy(), edges=self._edges(len(tree)))
        into.append(rows)
        if tree.requires_grad:
            tree = tree if is_output else tree.view_as(tree)
            tree.register_hook(rows.keep_gradient)
        return tree

    def _shifted(self, tensor: torch.Tensor, where: tuple[Key, int, bool]) -> torch.Tensor:
        shift = self.shift
        if shift is None or (shift.call, shift.place, shift.is_output) != where:
            return tensor
        ids = nodes_of(len(tensor), self._edges(len(tensor)), self.own_n, self.nonzeros, self.n_nodes)
        delta = torch.zeros_like(tensor)
        delta[: len(ids)] = torch.from_numpy(shift.delta(ids, (len(ids), *tensor.shape[1:])))
        return tensor + delta

    def _edges(self, length: int) -> list[np.ndarray] | None:
        """Return the edges of a wrapped module that runs which have so many rows; None: none runs."""
        on = next((module.on for module in self.wrapped if module.on is not None), None)
        if on is None or on.met is None:
            return None
        return [target * self.n_nodes + source for target, source in on.met.get(length, ())]


def nodes_of(
    length: int, edges: list[np.ndarray] | None, own_n: np.ndarray, nonzeros: dict[int, np.ndarray], n_nodes: int
) -> np.ndarray:
    """Return the nodes of the rows of a tensor: of edges or nonzeros the rows of A; else own nodes, which ghosts may follow."""
    edges = [nonzeros[length]] if edges is None and length in nonzeros else edges
    return edges[0] // n_nodes if edges and length != len(own_n) else own_n


def run_world(world: World, task: Task) -> list[RankPass]:
    """Return what each rank of a world did.

    Raises: the first error of a rank, with `module`, the path of the module that it was in.
    """
    threads = torch.get_num_threads()
    try:
        return run_threads(world.ranks, _run_rank, world, task)
    finally:
        torch.set_num_threads(threads)


def _run_rank(comm: Communicator, world: World, task: Task) -> RankPass:
    partition = None if world.ranks == 1 else world.owner_N
    options = {"locality": False, "threads": 1, "dtype": torch.float64, "replication": world.replication}
    dgraph = distribute(task.graph, comm, partition, **task.options | options)
    model = task.make().double()
    model.load_state_dict(task.state)
    watch = Watch(model, dgraph.n_nodes, task.shift)
    watch.own_n = dgraph.node_n
    watch.meet(dgraph.A)
    model.train(task.is_training)
    set_epoch(model, task.seed, EPOCH if task.is_training else 0)
    if dgraph.links is not None and dgraph.X is None:
        if not (width := next((width_of(layer, "f_in") for layer in layers_of(model)), None)):
            raise UsageError(f"{dgraph.name} has no features, and the model does not say how many it reads; give X")
        dgraph = dgraph.with_embedding(width, task.seed)
    X = dgraph.X
    if torch.is_tensor(X) and not any(weight.requires_grad for weight in model.parameters()):
        X = X.detach().clone().requires_grad_()
    try:
        with torch.set_grad_enabled(task.is_training):
            Z = model(dgraph.A, X)
            of_links = task.is_training and dgraph.links
            loss, labelled = _link_loss(Z, model, dgraph, task) if of_links else _loss(Z, dgraph, task, watch)
    except Exception as error:  # raised again, with the module that it comes from
        vars(error)["module"] = watch.open[-1].path if watch.open else ""
        raise
    watch.is_on = False
    if task.is_training and loss.requires_grad:
        with on_this_thread(dgraph.A):
            loss.backward()
    own = lambda tensors: {name: T.detach().clone().double().numpy() for name, T in tensors if T is not None}
    return RankPass(
        watch.calls, dgraph.node_n, watch.nonzeros, frozenset(watch.columns), dgraph.is_counted, float(loss.detach()),
        labelled, own((name, p.grad) for name, p in model.named_parameters()), own(model.named_buffers()),
    )  # fmt: skip


def _link_loss(Z_nF: Tree, model: torch.nn.Module, dgraph: DistGraph, task: Task) -> tuple[torch.Tensor, int]:
    """Return this rank's part of the mean loss of the training links, whose gradient is the one of Objective; and its links."""
    assert dgraph.links is not None
    if not torch.is_tensor(Z_nF) or Z_nF.ndim != 2 or len(Z_nF) != len(dgraph.node_n):
        raise ShapeError(f"the model returns no row per own node; expected ({len(dgraph.node_n)}, F)")
    decoder = decoder_of(model, Z_nF.shape[1], dgraph.links.n_relations)
    named, custom = ("bce", task.loss) if callable(task.loss) else (task.loss or "bce", None)
    config = build(TrainConfig, {"seed": task.seed, "negatives": 2, "loss": named})
    objective = Objective(dgraph, decoder, config, custom)
    of_t, fixed_nF = objective.train_T[objective.is_own_T], Z_nF.detach().contiguous()
    value, G_nF, _ = objective.gradient(fixed_nF, of_t, len(objective.train_T), EPOCH)
    return (Z_nF * G_nF).sum() - (fixed_nF * G_nF).sum() + value, len(of_t)


def _loss(Z: Tree, dgraph: DistGraph, task: Task, watch: Watch) -> tuple[torch.Tensor, int]:
    """Return this rank's part of a loss, and the number of rows that it sums over."""
    Z = next((T for T in Z if torch.is_tensor(T)), None) if isinstance(Z, (tuple, list)) else Z
    if not torch.is_tensor(Z):
        raise ShapeError(f"the model returns a {type(Z).__name__}; expected a tensor, or a tuple that has one")
    if len(Z) == len(dgraph.node_n) or (callable(task.loss) and dgraph.links is None):
        return loss_of_rows(Z, dgraph.node_n, dgraph.y_n, task)
    if len(Z) in watch.nonzeros:
        return loss_of_rows(Z, watch.nonzeros[len(Z)], None, replace(task, loss=None))
    raise ShapeError(f"the model returns {tuple(Z.shape)}; expected a row per own node, {len(dgraph.node_n)}")


def loss_of_rows(Z: torch.Tensor, ids: np.ndarray, y_n: torch.Tensor | None, task: Task) -> tuple[torch.Tensor, int]:
    """Return what rows add to the loss of a task, and the number of rows that it sums over; ids: of nodes, or of edges."""
    if callable(task.loss) and task.graph.links is None:
        if y_n is None:
            raise UsageError(f"loss needs labels, {task.graph.name} has none; give --labels, or omit loss")
        rows = y_n >= 0 if y_n.ndim == 1 else ~torch.isnan(y_n).all(dim=1)
        return task.loss(Z[rows], y_n[rows]) + Z[:0].sum(), int(rows.sum())
    Z_nC = Z[:, None] if Z.ndim == 1 else Z.flatten(1)
    angle_nC = torch.from_numpy(0.7391 * ids[:, None]) + torch.arange(Z_nC.shape[1])
    return (torch.sin(angle_nC + 0.3) * Z_nC).sum() / task.graph.n_nodes, len(Z)


def maker(model: torch.nn.Module | Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    """Return what makes a copy of a model for a rank. Raises: UsageError for what is neither a module nor makes one."""
    if isinstance(model, torch.nn.Module):
        return lambda: deepcopy(model)
    if not callable(model):
        raise UsageError(f"verify got a {type(model).__name__}; expected a torch module called as model(A, X)")
    return model


def random_world(n_nodes: int, ranks: int, replication: int, seed: int) -> World:
    """Return ranks with random parts of unequal sizes. Raises: UsageError for more ranks than nodes."""
    parts = ranks // replication
    if parts > n_nodes:
        raise UsageError(f"ranks = {ranks}: the graph has {n_nodes} nodes; take fewer ranks")
    rng = np.random.default_rng((seed, ranks, replication))
    owner_N = rng.choice(parts, n_nodes, p=np.arange(1, parts + 1) / (parts * (parts + 1) / 2)).astype(np.int32)
    owner_N[rng.permutation(n_nodes)[:parts]] = np.arange(parts)
    return World(ranks, owner_N, replication)


def halves(n_nodes: int, is_swapped: bool) -> World:
    """Return two ranks: the first third of the nodes and the rest; swapped: the rest and the first third."""
    first = np.arange(n_nodes) < max(n_nodes // 3, 1)
    return World(2, np.where(first, int(is_swapped), int(not is_swapped)).astype(np.int32))


def without(graph: Graph, dropped_E: np.ndarray, **changes: Any) -> Graph:
    """Return the graph without some of its nonzeros."""
    kept_E = ~dropped_E
    A = sp.csr_array(graph.A)
    indptr = np.concatenate([[0], np.cumsum(kept_E)])[A.indptr].astype(A.indptr.dtype)
    A = sp.csr_array((A.data[kept_E], A.indices[kept_E], indptr), shape=A.shape)
    rows = {name: getattr(graph, name, None) for name in ("edge_attr", "edge_ids")}
    return replace(graph, A=A, **{name: of[kept_E] for name, of in rows.items() if of is not None}, **changes)


def rows_of(graph: Graph) -> np.ndarray:
    """Return the row of each nonzero."""
    return np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))


def apart(graph: Graph, owner_N: np.ndarray) -> Graph:
    """Return the graph without edges between parts."""
    return without(graph, owner_N[rows_of(graph)] != owner_N[graph.A.indices])


def both_ways(graph: Graph) -> Graph | None:
    """Return the graph whose edges all have both directions; None where they have, or the two have different weights."""
    try:
        return None if graph.is_symmetric else replace(graph, edges="stored").with_edges("both")
    except GraphError:
        return None


def one_way(graph: Graph, seed: int) -> Graph:
    """Return a symmetric graph in which a third of the edges have each of the two directions, and a third both."""
    rows, columns = rows_of(graph).astype(np.int64), graph.A.indices.astype(np.int64)
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    draws_N = np.random.default_rng(seed).integers(0, 3, graph.n_nodes)
    kind_E = (draws_N[low] + draws_N[high]) % 3  # the same for both directions
    dropped_E = ((kind_E == 0) & (rows < columns)) | ((kind_E == 1) & (rows > columns))
    return without(graph, dropped_E, edges="directed")
