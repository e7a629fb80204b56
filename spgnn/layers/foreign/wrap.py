"""wrap: any module of torch or PyG as a layer on a distributed graph.

Shapes: m own rows, E edges, F in, C out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn

from ...errors import ShapeError, UsageError, is_number
from ...spmm.chains.dropout import NOTHING, dropout_key
from ...spmm.exchange.owners import any_rank, has_other_ranks
from ...terminal import say
from ..layer import Layer, derived
from ..stack import Seeded, operands, set_epoch
from .ends import WHOLE, Ends, LocalEdges, ends, plain
from .on_ranks import OnRanks
from .pyg_kernels import use_kernels
from .row_dims import RowCount, mark, row_type
from .typed_rows import EdgeIndexDict

Call = Callable[[nn.Module, "LocalGraph", torch.Tensor], torch.Tensor]

# Modules that cannot be exact where a rank has some of the rows, by the names of their classes: PyG is not imported.
SEMANTIC = "it takes a mean over all nodes of a type, of which a rank has a part"
ATTENDS = "each node attends to all nodes of the graph, which no rank has"
SAMPLES = "it draws edges or nodes by torch's random numbers, which differ between ranks"
PADS = "it pads the neighbours of a node to the largest degree, which differs between ranks"
COUNTS = "it has weights for each node, by number: a rank numbers its own rows"
SPARSE = "it reads a sparse matrix of torch_sparse, not an edge_index"
NEAREST = "it makes its own edges, from the nearest of all nodes"
DROPS = "it leaves out nodes by their rank among all nodes of the graph"
MESH = "its edges are rows of the input, each with 4 neighbours, not the edges of a graph of nodes"
CUGRAPH = "its kernels are cuGraph's, which read the graph themselves"
REFUSED = {
    "HANConv": SEMANTIC,
    **dict.fromkeys(("GPSConv", "SGFormer", "Polynormer", "MultiheadAttention", "PerformerAttention"), ATTENDS),
    **dict.fromkeys(("SuperGATConv", "DeepGraphInfomax", "MaskLabel", "RECT_L", "Node2Vec", "MetaPath2Vec"), SAMPLES),
    **dict.fromkeys(("LSTMAggregation", "GRUAggregation", "MLPAggregation", "SortAggregation", "Set2Set"), PADS),
    **dict.fromkeys(("SetTransformerAggregation", "GraphMultisetTransformer", "EquilibriumAggregation"), PADS),
    **dict.fromkeys(("LightGCN", "LINKX", "SignedGCN", "TGNMemory"), COUNTS),
    **dict.fromkeys(("PANConv",), SPARSE),
    **dict.fromkeys(("DynamicEdgeConv", "GravNetConv", "XConv"), NEAREST),
    **dict.fromkeys(("TopKPooling", "SAGPooling", "ASAPooling", "EdgePooling", "PANPooling", "GraphUNet"), DROPS),
    **dict.fromkeys(("MeshCNNConv",), MESH),
    **dict.fromkeys(("CuGraphModule",), CUGRAPH),
    "WLConv": "it numbers the colours of nodes in the order in which it meets them, which differs between ranks",
}


def wrap(module: nn.Module, call: Call | None = None) -> Wrapped:
    """Return a layer that computes what a module of torch or PyG computes on the whole graph, exact on any ranks.

        model = spgnn.wrap(torch_geometric.nn.models.GCN(500, 64, num_layers=3, out_channels=7))
        history = spgnn.train(model, dgraph)
        model = Stack(spgnn.wrap(GATConv(500, 8, heads=8)), nn.ELU(), spgnn.wrap(GCNConv(64, 7)), dropout=0.5)

    It has the module's parameters, and the keys of its state_dict. The module is called as module(x, edge_index), where x
    has the own rows, and with other arguments that its forward names: edge_weight (if weights of the graph are not all
    1), edge_attr (attributes of edges) and batch. edge_index is a handle of the graph: rows that are gathered at the
    source of edges are exchanged, and sums at sources go to their owners. GCNConv, SAGEConv, GATConv, GATv2Conv and
    GINConv run on the kernels of spgnn. A forward that names x_dict, or HeteroConv, gets x_dict and edge_index_dict of a
    typed graph; what it returns by types are rows of all nodes, zeros of types that it leaves out.
    BatchNorm and PyG's norms use the rows of all ranks. Dropout draws by original ids, as on one rank. If one rank has
    as many edges as nodes, a matrix that is dropped outside of a propagate is assumed to have a row per node.

    Args:   module  of PyG, or any module that gathers and scatters by an edge_index.
            call    (module, graph, x) -> (m, C), for a module with other arguments; graph is a LocalGraph.
    Raises: UsageError for modules that cannot be exact on a part of the rows, with the reason; and, when the module runs,
            for operations on edge_index that have no meaning on a part of the edges.
    """
    return Wrapped(module, call)


class LocalGraph:
    """The edges into the own rows of a rank, as arguments of a wrapped module.

    edge_index   (2, E), a handle: [0] places of sources, [1] of targets.
    edge_weight  (E,), or None where all weights are 1.
    edge_attr    (E, F_e) of the graph, or None.
    edge_type    (E,) int64, the relations of edges, as a layer of relations numbers them, or None.
    x_dict, edge_index_dict  of a typed graph: own rows of each type, (m_t, F_t), and handles of each relation.
    batch        (m,), the graph of each node, as PyG's norms and pooling read it.
    num_nodes    m, an RowCount: a size of tensors, not the number of nodes of the graph.
    """

    def __init__(self, on: OnRanks, edges: LocalEdges, x: torch.Tensor):
        self.on, self.edges, self.num_nodes, self.x = on, edges, RowCount(on.A.m), x
        self.edge_index, self.edge_weight, self.batch = edges.index, edges.weight_E, edges.batch
        mark(edges.weight_E, 0)

    @property
    def edge_attr(self) -> torch.Tensor | None:
        """The attributes of edges, in the order of edge_index."""
        attr_EF = self.edges.attributes(self.on.A.operator)
        attr_EF = attr_EF if attr_EF is not None and attr_EF.shape[1] else None  # classes of edges alone
        mark(attr_EF, 0)
        return attr_EF

    @property
    def edge_type(self) -> torch.Tensor | None:
        """The relations of edges, in the order of edge_index."""
        relation_E = self.edges.relations(self.on.A.operator)
        mark(relation_E, 0)
        return relation_E

    @property
    def x_dict(self) -> dict[str, torch.Tensor]:
        """The input of the module by types of nodes. Raises: UsageError where nodes or relations have no types."""
        typed, _ = self.edges.typed(self.on.A)
        self.on.trusted.append(True)
        found = typed.split(self.x, partial(any_rank, self.on.A))
        self.on.trusted.pop()
        for t, rows in enumerate(found.values()):
            mark(rows, 0, t)
        return found

    @property
    def edge_index_dict(self) -> EdgeIndexDict:
        """edge_index of each relation: sources among rows of their type, targets among own rows of theirs."""
        _, found = self.edges.typed(self.on.A)
        found.on = self.on
        return found

    def joined(self, out: Any) -> Any:
        """Return a result by types of nodes as own rows, and others as they are."""
        return self.edges.typed(self.on.A)[0].joined(out) if isinstance(out, dict) else out

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return own, then ghost rows (t, F), for modules that gather by themselves: places[0] are their numbers. Collective."""
        return self.on.table(H_mF, 0)

    @property
    def places(self) -> torch.Tensor:
        """edge_index as plain numbers: [0] rows of `columns`, [1] own rows."""
        return plain(self.edge_index)


class Wrapped(Layer, Seeded):
    """Z = module(x, edge_index) on the whole graph; see `wrap`.

    Outside of a Stack, called as wrapped(A, X), masks of dropout are drawn by seed and epoch as those of a Stack are.
    """

    operator = "none"
    is_random = derived(lambda self: any(map(_differs_in_training, self.module.modules())))
    module: nn.Module
    call: Call | None
    on: OnRanks | None  # the pass that runs
    is_watched: bool  # by verify

    def __init__(self, module: nn.Module, call: Call | None = None):
        if not isinstance(module, nn.Module):
            raise UsageError(f"wrap got a {type(module).__name__}; expected a torch.nn.Module")
        check_module(module)
        nn.Module.__init__(self)
        # The dicts of the module itself: its state_dict, parameters and children. What is set by name would be a child.
        shared = {name: getattr(module, name) for name in ("_parameters", "_buffers", "_modules", "training")}
        vars(self).update(module=module, call=call, on=None, is_watched=False, drawn=[], **shared)
        for inner in module.modules():
            _follow(self, inner)

    @property
    def f_in(self) -> int | None:  # pyrefly: ignore[bad-override]  # read from the module, never set
        """The columns that the module reads, where it has them as in_channels."""
        width = getattr(self.module, "in_channels", getattr(self.module, "in_features", None))
        return width if isinstance(width, int) and width > 0 else None

    def train(self, mode: bool = True) -> Wrapped:
        """Set the mode of the module and its children."""
        super().train(mode)
        self.module.training = mode
        return self

    def initialise(self, generator: torch.Generator) -> None:
        """Do nothing: the module was drawn, or trained, before it was wrapped."""

    def load_state_dict(self, state_dict, strict: bool = True, assign: bool = False):
        """Load weights. Raises: UsageError naming one that PyG 1 had in another shape."""
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError:
            new = {
                f"{key.removesuffix('lin.weight')}weight": key
                for key in self.state_dict()
                if key.endswith("lin.weight")
            }
            for old in new.keys() & (state_dict.keys() - self.state_dict().keys()):
                raise UsageError(
                    f"{old} is of PyG 1, which has weights transposed: state[{new[old]!r}] = state.pop({old!r}).T"
                ) from None
            raise

    def extra_repr(self) -> str:
        return " ".join(repr(self.module).split())

    def forward(self, A, X=None, seed: int = 0, epoch: int = 0) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective."""
        if X is None or torch.is_tensor(A):
            A, X = operands(A, X)
        if epoch:
            set_epoch(self, seed, epoch)
        key = getattr(A, "key", None)
        if key is None:
            key = dropout_key(self.seed, self.epoch, 1, self.number) if self.training else NOTHING
        A = A.at(getattr(A, "layer", None), getattr(A, "is_last", False), "none", key)
        has_other_ranks(A)  # refuses 1.5D
        H = X if torch.is_tensor(X) else X.dense()
        dtype = torch.float64 if A.dtype == torch.float64 else torch.float32
        H = H if H.dtype == dtype else H.to(dtype)
        mark(H, 0)
        with torch.inference_mode(False):
            edges = A.operator.once(LocalEdges, lambda: LocalEdges.of(A, dtype))
        on = OnRanks(A, edges)
        if self.is_watched:
            on.met = {}
            on.meet(edges.index)
        vars(self)["on"] = edges.index.on = edges.batch.on = on
        try:
            with on, torch.autocast("cuda" if H.device.type == "cuda" else "cpu", enabled=False):
                out = self.called(LocalGraph(on, edges, H), H)
        finally:
            vars(self)["on"] = edges.index.on = edges.batch.on = None
            _clear_caches(self.module)
        if not torch.is_tensor(out) or isinstance(out, Ends) or out.ndim != 2 or len(out) != A.m:
            got = f"shape {tuple(out.shape)}" if torch.is_tensor(out) else f"a {type(out).__name__}"
            raise ShapeError(
                f"{type(self.module).__name__} returned {got}; expected ({A.m}, C), a row for each own node"
            )
        return A.select(out)

    def called(self, graph: Any, x: torch.Tensor) -> Any:
        """Return what the module returns for a LocalGraph, or the whole graph with the same attributes."""
        if self.call:
            return graph.joined(self.call(self.module, graph, x))
        first, given = self._arguments(graph, x)
        if (
            "edge_weight" in given
            and isinstance(graph, LocalGraph)
            and graph.on.A.comm.rank == 0
            and not self.is_watched
        ):
            if not vars(self).get("is_said"):
                say(
                    f"{type(self.module).__name__} is given the weights of the graph, as edge_weight; call=... leaves them out"
                )
            vars(self)["is_said"] = True
        try:
            return graph.joined(self.module(*first, **given))
        except (AssertionError, AttributeError, TypeError) as error:
            raise UsageError(
                f"{type(self.module).__name__}, called as module({', '.join(['x'] * len(first) + [*given])}), raised {type(error).__name__} "
                f"({error}); for other arguments give call=lambda module, graph, x: ..."
            ) from error

    def _arguments(self, graph: Any, x: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
        """Return the first arguments of the module's forward, x or x_dict, and those after it, by name."""
        given = {}
        # Of the class: a convolution on kernels has another forward.
        forward = type(self.module).forward if isinstance(vars(self.module).get("forward"), MethodType) else None
        first, *parameters = inspect.signature(forward or self.module.forward).parameters.values()
        first, *parameters = parameters if forward else (first, *parameters)
        if first.name in ("data", "batch", "graph", "g"):
            raise UsageError(
                f"forward of {type(self.module).__name__} takes {first.name}: give call=lambda module, graph, x: "
                f"module(Data(x=x, edge_index=graph.edge_index))"
            )
        if first.name == "args_dict":  # of HeteroConv
            return [graph.x_dict, graph.edge_index_dict], {}
        for parameter in parameters:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            is_taken = name in TAKEN and not (name == "edge_attr" and _ignores_attributes(self.module))
            is_left_out = name == "batch" and not isinstance(graph, LocalGraph) and parameter.default is None
            value = getattr(graph, TAKEN[name]) if is_taken and not is_left_out else None
            if value is not None:
                given[name] = value
                if name == "edge_type" and isinstance(graph, LocalGraph):
                    _check_relations(self.module, graph.on.A.relations[1])
            elif parameter.default is parameter.empty:
                what = "the graph has none" if name in TAKEN else "which a graph does not have"
                raise UsageError(
                    f"forward of {type(self.module).__name__} needs {name}, {what}: give call=lambda module, graph, x: ..."
                )
        return [graph.x_dict if first.name == "x_dict" else x], given


# Arguments of a forward, by name -> of LocalGraph.
TAKEN = {
    name: name
    for name in ("edge_index", "edge_weight", "edge_attr", "edge_type", "edge_index_dict", "batch", "num_nodes")
}
TAKEN |= {"hyperedge_index": "edge_index"}  # of nodes as hyperedges


def _differs_in_training(inner: nn.Module) -> bool:
    if not type(inner).__module__.startswith(("torch.nn.", "torch_geometric.")):
        return True
    rates = [value for name, value in vars(inner).items() if name == "p" or "dropout" in name]
    return "running_mean" in inner._buffers or any(is_number(rate) and rate > 0 for rate in rates)


def _check_relations(module: nn.Module, R: int) -> None:
    """Raise UsageError where a convolution was made for fewer relations than the graph has: PyG would leave edges out."""
    for inner in module.modules():
        if R > (made := vars(inner).get("num_relations", R)):
            raise UsageError(
                f"edges have {R} relations, and {type(inner).__name__} was made with num_relations={made}: make it with "
                f"num_relations={R}, each relation and its inverse, or give call=lambda module, graph, x: ..."
            )


def _ignores_attributes(module: nn.Module) -> bool:
    """Return whether the convolutions in a module take no attributes, or were made without edge_dim."""
    if getattr(module, "supports_edge_attr", True) is False:  # one of PyG's models
        return True
    dims = [inner.edge_dim for inner in module.modules() if hasattr(inner, "edge_dim")]
    return bool(dims) and all(dim is None for dim in dims)


def _follow(wrapped: Wrapped, inner: nn.Module) -> None:
    """Register hooks: note the edges of a propagate, and pass batch to norms. Use kernels of spgnn where they exist."""
    use_kernels(inner)
    inner.register_forward_pre_hook(partial(_trust, wrapped))
    inner.register_forward_hook(partial(_distrust, wrapped))
    for kind in ("propagate", "edge_update"):
        if hasattr(inner, f"register_{kind}_forward_pre_hook"):
            getattr(inner, f"register_{kind}_forward_pre_hook")(partial(_enter, wrapped))
            getattr(inner, f"register_{kind}_forward_hook")(partial(_leave, wrapped))
    if "batch" in inspect.signature(inner.forward).parameters and inner is not wrapped.module:
        inner.register_forward_pre_hook(partial(_give_batch, wrapped), with_kwargs=True)


def _trust(wrapped: Wrapped, inner: nn.Module, args) -> None:
    if wrapped.on is not None:
        is_torch, is_pyg = (type(inner).__module__.startswith(name) for name in ("torch.nn.", "torch_geometric."))
        wrapped.on.trusted.append(is_pyg or is_torch and wrapped.on.trusted[-1])


def _distrust(wrapped: Wrapped, inner: nn.Module, args, out) -> None:
    if wrapped.on is not None:
        wrapped.on.trusted.pop()


def _enter(wrapped: Wrapped, inner: nn.Module, inputs) -> None:
    if wrapped.on is not None and isinstance(inputs[0], Ends):
        wrapped.on.passing = inputs[0]


def _leave(wrapped: Wrapped, inner: nn.Module, inputs, out) -> None:
    if wrapped.on is not None:
        wrapped.on.passing = None


def _give_batch(wrapped: Wrapped, inner: nn.Module, args, kwargs):
    if wrapped.on is None or wrapped.on.edges is None:
        return None
    batch, place = wrapped.on.edges.batch, list(inspect.signature(inner.forward).parameters).index("batch")
    if args and torch.is_tensor(args[0]) and row_type(args[0]) is not None:
        batch = ends(torch.zeros(len(args[0]), dtype=torch.int64, device=args[0].device), WHOLE)
        batch.on = wrapped.on
    if len(args) <= place:
        return args, kwargs | {"batch": batch if kwargs.get("batch") is None else kwargs["batch"]}
    given = batch if args[place] is None else args[place]
    return (*args[:place], given, *args[place + 1 :]), kwargs


def _clear_caches(module: nn.Module) -> None:
    """Clear what cached = True has stored, which is valid for one pass."""
    for inner in module.modules():
        for name in [name for name in vars(inner) if name.startswith("_cached_")]:
            setattr(inner, name, None)


def check_module(module: nn.Module) -> None:
    """Raise UsageError where a module, or one in it, cannot run on a part of the rows."""
    for name, inner in module.named_modules():
        is_compiled = hasattr(inner, "_orig_mod") or getattr(inner, "_compiled_call_impl", None) is not None
        if is_compiled or isinstance(inner, torch.jit.ScriptModule):
            kind = "compiled: give the module itself, as net in torch.compile(net)" if is_compiled else "scripted"
            raise UsageError(f"{name or type(inner).__name__} cannot be wrapped: it is {kind}")
        for cls in type(inner).__mro__:
            if cls.__name__ in REFUSED:
                where = f"{name}, a {type(inner).__name__}," if name else f"a {type(inner).__name__}"
                raise UsageError(f"{where} cannot be wrapped: {REFUSED[cls.__name__]}")
        for parameter in inner._parameters.values():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise UsageError(
                    f"{name or type(inner).__name__} has weights without a shape: give in_channels, not -1"
                )


def check_called(model: nn.Module) -> None:
    """Raise UsageError for a model that is not called as model(A, X), as those of PyG are not."""
    try:
        signature = inspect.signature(model.forward)
    except ValueError:  # compiled
        return
    parameters = signature.parameters
    try:
        signature.bind(None, None)
        is_called = "edge_index" not in parameters
    except TypeError:
        is_called = False
    if not is_called:
        given = "" if "edge_index" in parameters else ", call=lambda module, graph, x: ..."
        shown = ", ".join([*list(parameters)[:3], *["..."] * (len(parameters) > 3)])
        raise UsageError(
            f"a model is called as model(A, X), {type(model).__name__} as model({shown}); "
            f"for one of PyG give spgnn.wrap(model{given})"
        )
