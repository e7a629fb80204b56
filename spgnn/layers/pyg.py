"""stack_from_pyg: trained weights of PyG's convolutions as a Stack. Modules are known by the names of their classes.

Shapes: F in, C out, heads K of width D. PyG stores W as (C, F) and orders columns of heads as k D + d; here d K + k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..errors import ShapeError, UsageError, nearest
from .layer import ACTIVATIONS
from .registry import LISTED, ModelSpec
from .stack import Stack

CONVS = {"gcn": "GCNConv", "sage": "SAGEConv", "gat": "GATConv", "gatv2": "GATv2Conv", "gin": "GINConv"}
ANCHORS = {"gcn": "lin.weight", "sage": "lin_l.weight", "gat": "att_src", "gatv2": "att", "gin": "eps"}  # in each one
MODULES = {"ReLU": "relu", "ELU": "elu", "GELU": "gelu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Identity": "none"}
AGGREGATORS = {"mean": "mean", "add": "sum", "sum": "sum", "max": "max"}
KNOWN = f"{', '.join(CONVS.values())}, Linear, LayerNorm, Dropout, {', '.join(MODULES)}"


def stack_from_pyg(
    source,
    family: str | None = None,
    act: str | None = None,
    jump: str | None = None,
    aggregator: str | None = None,
    slope: float | None = None,
) -> Stack:
    """Return a Stack with the weights of a model of PyG; its predictions are the model's.

        net = torch.nn.ModuleList([GCNConv(1433, 16), torch.nn.ReLU(), GCNConv(16, 7)])
        model = spgnn.layers.stack_from_pyg(net)
        model = spgnn.layers.stack_from_pyg([net.conv1, "relu", net.conv2])
        model = spgnn.layers.stack_from_pyg(torch.load("net.pt", weights_only=True), family="gcn", act="relu")

    Args:   source  convolutions in their order, with activations (modules or names), LayerNorm and Linear between them:
                    a list, nn.Sequential, PyG's Sequential, one of PyG's models (GCN, GraphSAGE, GAT, GIN), or one
                    convolution. Or a state_dict, which is described by the other arguments.
            family  of a state_dict: gcn, sage, gat, gatv2 or gin.
            act     of a state_dict: activation between its layers; default: relu.
            jump    of a state_dict: cat or max, what its last layer reads.
            aggregator, slope  of a state_dict: of SAGEConv, default mean; of GATConv, default 0.2.
    Raises: UsageError for a module or setting that has no counterpart; ShapeError for weights that do not fit.

    Dropout is left out. mean uses the weights of edges, which SAGEConv ignores; on directed graphs GCN divides by the
    degrees of both ends, GCNConv by in-degrees alone.
    """
    described = {"family": family, "act": act, "jump": jump, "aggregator": aggregator, "slope": slope}
    given = [name for name, value in described.items() if value is not None]
    if isinstance(source, Mapping):
        parts = _parts_of_state(source, family, act or "relu", aggregator or "mean", 0.2 if slope is None else slope)
    elif given:
        raise UsageError(f"{given[0]} describes a state_dict; omit it, the {type(source).__name__} has its own")
    else:
        parts, jump = _parts_of_items(list(_flat(source))), _jump_of(source)
    if not parts:
        raise UsageError("stack_from_pyg got no layers; expected convolutions of PyG in their order")
    return _stack(parts, jump)


from_pyg = stack_from_pyg  # spgnn.from_pyg makes a graph


@dataclass(slots=True)
class _Part:
    """One module: tensors by name, settings, and what follows it.

    get  the value of a setting by its name in PyG, and its default.
    """

    name: str
    tensors: Mapping[str, torch.Tensor]
    get: Callable[[str, Any], Any]
    where: str
    act: str | None = None
    norm: _Part | None = None
    read: set[str] = field(default_factory=set)

    def take(self, name: str, is_needed: bool = True) -> torch.Tensor | None:
        """Return a tensor, None where it may be missing."""
        self.read.add(name)
        found = self.tensors.get(name)
        if found is None and is_needed:
            raise UsageError(f"{self.where} has no {name!r}; it has {', '.join(self.tensors) or 'nothing'}")
        return None if found is None else found.detach()

    def expect(self, **settings) -> None:
        """Raise UsageError for a setting that has another value than the one that a layer here computes."""
        for name, expected in settings.items():
            if (got := self.get(name, expected)) != expected:
                raise UsageError(f"{self.where} has {name} = {got}; only {name} = {expected} can be converted")

    def check_read(self) -> None:
        """Raise UsageError for a tensor that no layer here has."""
        if unknown := [name for name in self.tensors if name not in self.read]:
            raise UsageError(f"{self.where} has {unknown[0]!r}, which cannot be converted; it is no {self.name} of PyG")


@dataclass(frozen=True, slots=True)
class _Converted:
    """A layer here: class, keywords, tensors by the names of its parameters, None for zeros.

    order  of its output columns: column c here is column order[c] of PyG's; None: as they are.
    """

    layer: str
    keywords: dict[str, Any]
    tensors: dict[str, torch.Tensor | None]
    order: torch.Tensor | None = None


def _flat(source) -> Iterator:
    """Yield the modules and names of activations of a model in their order."""
    name = type(source).__name__
    if name in (*CONVS.values(), *MODULES, "Linear", "Dropout", "LayerNorm") or isinstance(source, str):
        yield source
    elif hasattr(source, "_children"):  # PyG's Sequential
        for before, child in zip([None, *source._children], source._children):
            if before and (child.param_names[0], len(child.return_names)) != (before.return_names[0], 1):
                raise UsageError(f"{child.name} does not read what {before.name} returns; only chains can be converted")
            yield from _flat(getattr(source, child.name))
    elif isinstance(source, (nn.Sequential, nn.ModuleList, list, tuple)):
        for item in source:
            yield from _flat(item)
    elif _is_basic(source):
        yield from _flat_basic(source)
    else:
        hint = "give its layers in order, stack_from_pyg([net.conv1, 'relu', net.conv2])"
        raise UsageError(f"a {name} cannot be converted, only {KNOWN}; of a module with its own forward {hint}")


def _is_basic(source) -> bool:
    return any(cls.__name__ == "BasicGNN" for cls in type(source).__mro__)


def _flat_basic(model) -> Iterator:
    """Yield the modules of one of PyG's models."""
    if model.act_first and not all(type(norm).__name__ == "Identity" for norm in model.norms):
        raise UsageError("act_first = True cannot be converted; a norm comes before the activation")
    last = len(model.convs) - 1
    for number, (conv, norm) in enumerate(zip(model.convs, model.norms)):
        yield from _flat(conv)
        if number < last or model.jk_mode is not None:
            yield from _flat(norm)
            yield from _flat(model.act if model.act is not None else "none")
    if hasattr(model, "lin"):
        yield from _flat(model.lin)


def _jump_of(source) -> str | None:
    jump = getattr(source, "jk_mode", None) if _is_basic(source) else None
    if jump not in (None, "last", "cat", "max"):
        raise UsageError(f"jk = {jump!r} cannot be converted; expected cat, max or last")
    return None if jump == "last" else jump


def _parts_of_items(items: Sequence) -> list[_Part]:
    """Return the layers of a sequence of modules, each with the norm and the activation that follow it."""
    parts: list[_Part] = []
    for item in items:
        name = type(item).__name__
        if isinstance(item, str) or name in MODULES:
            act = item if isinstance(item, str) else _activation(item)
            if act not in ACTIVATIONS:
                raise UsageError(f"activation {act!r} is not known{nearest(act, ACTIVATIONS)}")
            if act != "none" and (not parts or parts[-1].act):
                raise UsageError(f"activation {act!r} does not follow a layer; expected layer, activation, layer ...")
            if act != "none":
                parts[-1].act = act
            continue
        if name == "Dropout":
            continue
        tensors = dict(item.state_dict())
        get = lambda setting, default, module=item: getattr(module, setting, default)
        if name == "LayerNorm":
            if not parts or parts[-1].act or parts[-1].norm:
                raise UsageError("a LayerNorm does not follow a layer; expected layer, LayerNorm, activation")
            parts[-1].norm = _Part(name, tensors, get, f"the norm of layer {len(parts)}")
            continue
        parts.append(_Part(name, tensors, get, f"layer {len(parts) + 1}, {name},"))
    return parts


def _activation(module: nn.Module) -> str:
    if getattr(module, "alpha", 1.0) != 1.0 or getattr(module, "approximate", "none") != "none":
        raise UsageError(f"{module} cannot be converted; only its defaults can")
    return MODULES[type(module).__name__]


def _parts_of_state(state: Mapping, family: str | None, act: str, aggregator: str, slope: float) -> list[_Part]:
    """Return the layers of a state_dict in the order of its names."""
    if family == "gat" and any(name == "att" or name.endswith(".att") for name in state):
        family = "gatv2"
    if family not in CONVS:
        raise UsageError(f"family = {family!r} of a state_dict{nearest(str(family), CONVS)}")
    anchor = ANCHORS[family]
    found = [name.removesuffix(anchor) for name in state if name == anchor or name.endswith(f".{anchor}")]
    prefixes = {
        prefix: CONVS[family] for prefix in found if not any(p != prefix and p.startswith(prefix) for p in found)
    }
    if not prefixes:
        raise UsageError(
            f"the state_dict has no {anchor!r} of a {CONVS[family]}; it has {', '.join(list(state)[:6])} ..."
        )
    settings = {"aggr": aggregator, "negative_slope": slope}
    parts: dict[str, _Part] = {}
    for name, tensor in state.items():
        prefix = next((p for p in prefixes if name.startswith(p)), name.rpartition(".")[0] + ".")
        kind = prefixes.get(prefix, "Linear")
        if prefix not in parts:
            parts[prefix] = _Part(kind, {}, lambda setting, default: settings.get(setting, default), "", act)
            parts[prefix].where = f"{prefix.rstrip('.') or 'the state_dict'}, read as {kind},"
        parts[prefix].tensors[name[len(prefix) :]] = tensor
    made = list(parts.values())
    made[-1].act = None
    return made


def _stack(parts: list[_Part], jump: str | None) -> Stack:
    """Return the Stack of layers, weights copied; rows of W follow the order of the columns of the layers before."""
    converted, orders = [], []
    for number, part in enumerate(parts, start=1):
        before = orders[-1] if orders else None
        if jump and number == len(parts):
            before = _joined(orders, converted, jump)
        made = CONVERT[part.name](part, before)
        part.check_read()
        made.keywords["act"] = part.act
        if part.norm is not None:
            _add_norm(made, part.norm)
        converted.append(made)
        orders.append(made.order)
    if orders[-1] is not None:
        converted.append(_in_order(orders[-1]))
    layers = [[made.layer, made.keywords] for made in converted]
    sizes = {"f_in": layers[0][1]["f_in"], "n_classes": layers[-1][1]["f_out"]}
    spec = ModelSpec(LISTED, sizes | {"layers": layers, "jump": jump})
    stack = spec.build()
    for number, (layer, made) in enumerate(zip(stack.layers, converted), start=1):
        _fill(number, layer, made)
    stack.spec, stack.is_trained = spec, True
    return stack.to(next(t.dtype for made in converted for t in made.tensors.values() if t is not None)).eval()


@torch.no_grad()
def _fill(number: int, layer: nn.Module, made: _Converted) -> None:
    for name, tensor in made.tensors.items():
        parameter = layer.get_parameter(name)
        if tensor is not None and parameter.numel() != tensor.numel():
            got, expected = tuple(tensor.shape), tuple(parameter.shape)
            raise ShapeError(f"layer {number}, {made.layer}: {name} has shape {got}; expected {expected}")
        given = torch.zeros_like(parameter) if tensor is None else tensor.reshape(parameter.shape)
        parameter.data = given.clone(memory_format=torch.contiguous_format)


def _add_norm(made: _Converted, norm: _Part) -> None:
    norm.expect(eps=1e-5, mode="node", elementwise_affine=True, affine=True)
    weight, bias = norm.take("weight"), norm.take("bias")
    made.keywords["norm"] = "layer"
    for name, tensor in (("norm.weight", weight), ("norm.bias", bias)):
        made.tensors[name] = tensor if made.order is None else tensor[made.order]


def _joined(orders: list, converted: list[_Converted], jump: str) -> torch.Tensor | None:
    """Return the order of the columns that a last layer reads of all layers before it."""
    widths = [made.keywords["f_out"] for made in converted]
    orders = [torch.arange(f) if order is None else order for f, order in zip(widths, orders)]
    if jump == "max":
        return orders[0]
    starts = [sum(widths[:number]) for number in range(len(widths))]
    return torch.cat([start + order for start, order in zip(starts, orders)])


def _in_order(order: torch.Tensor) -> _Converted:
    """Return the dense layer that puts the columns of heads back into PyG's order."""
    W = torch.zeros(len(order), len(order))
    W[torch.arange(len(order)), order] = 1
    return _Converted("MLP", {"f_in": len(order), "f_out": len(order), "bias": False}, {"W.0": W})


def _rows(W_CF: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Return W as (F, C), its rows in the order of the columns of the layer before."""
    return W_CF.T if order is None else W_CF.T[order]


def _linear(part: _Part, order) -> _Converted:
    W_FC, b_C = _rows(part.take("weight"), order), part.take("bias", is_needed=False)
    keywords = {"f_in": W_FC.shape[0], "f_out": W_FC.shape[1], "bias": b_C is not None}
    return _Converted("MLP", keywords, {"W.0": W_FC} | ({} if b_C is None else {"b_C": b_C}))


def _gcn(part: _Part, order) -> _Converted:
    part.expect(improved=False, add_self_loops=True, normalize=True, flow="source_to_target")
    W_FC, b_C = _rows(part.take("lin.weight"), order), part.take("bias", is_needed=False)
    keywords = {"f_in": W_FC.shape[0], "f_out": W_FC.shape[1], "bias": b_C is not None}
    return _Converted("GCN", keywords, {"W_FC": W_FC} | ({} if b_C is None else {"b_C": b_C}))


def _sage(part: _Part, order) -> _Converted:
    part.expect(normalize=False, flow="source_to_target")
    aggregator = AGGREGATORS.get(part.get("aggr", "mean"))
    if aggregator is None:
        raise UsageError(f"{part.where} has aggr = {part.get('aggr', 'mean')}; only mean, sum and max can be converted")
    W_p, W_r = part.take("lin.weight", is_needed=False), part.take("lin_r.weight", is_needed=False)
    if W_p is not None and aggregator != "max":
        raise UsageError(f"{part.where} has project = True; only with aggr = max it can be converted")
    b_p, b_C = part.take("lin.bias", is_needed=False), part.take("lin_l.bias", is_needed=False)
    W_l = part.take("lin_l.weight")
    keywords = {"f_in": W_l.shape[1], "f_out": W_l.shape[0], "aggregator": aggregator}
    keywords["bias"] = b_C is not None or b_p is not None
    tensors = {"W_n": _rows(W_l, order if W_p is None else None)}
    tensors["W_s"] = None if W_r is None else _rows(W_r, order)  # without root_weight the own row counts nothing
    if aggregator == "max":
        keywords["pool"] = 0 if W_p is None else W_p.shape[0]
    if W_p is not None:
        tensors |= {"W_FP": _rows(W_p, order), "b_P": b_p}
    return _Converted("SAGE", keywords, tensors | ({"b_C": b_C} if keywords["bias"] else {}))


def _gat(part: _Part, order) -> _Converted:
    """e_ij = lrelu(att_dst x_i + att_src x_j), x = lin; v2: att lrelu(lin_r h_i + lin_l h_j), whose sum is of lin_l h_j."""
    part.expect(add_self_loops=True, residual=False, edge_dim=None, flow="source_to_target")
    is_v2 = part.name == "GATv2Conv"
    att_KD = part.take("att" if is_v2 else "att_src")[0]
    K, D = att_KD.shape
    heads = None if K == 1 else torch.arange(K * D).view(K, D).T.reshape(-1)  # column d K + k is PyG's k D + d
    columns = lambda W_CF: W_CF if heads is None else W_CF[heads]
    b_C = part.take("bias", is_needed=False)
    is_cat = part.get("concat", None)
    if is_cat is None:  # of a state_dict
        if b_C is None and K > 1:
            raise UsageError(f"{part.where} has no bias, which shows whether heads are concatenated; give the module")
        is_cat = b_C is None or len(b_C) == K * D
    out = None if not is_cat else heads
    b_C = b_C if b_C is None or out is None else b_C[out]
    slope = part.get("negative_slope", 0.2)
    if not is_v2:
        name = "lin.weight" if "lin.weight" in part.tensors else "lin_src.weight"  # of PyG before 2.5
        W_CF = part.take(name)
        W_dst = part.take("lin_dst.weight", is_needed=False)
        if W_dst is not None and not torch.equal(W_CF, W_dst):
            raise UsageError(f"{part.where} has other weights for targets than for sources, which cannot be converted")
        tensors = {"left_DK": part.take("att_dst")[0].T, "right_DK": att_KD.T}
    else:
        W_CF, b_l, b_r = part.take("lin_l.weight"), *(part.take(f"lin_{end}.bias", is_needed=False) for end in "lr")
        tensors = {"W_l": _rows(columns(part.take("lin_r.weight")), order), "a_DK": att_KD.T}
        if b_l is not None:  # weights of edges sum to 1, so that b_l is added to what they sum
            tensors["b_l"] = columns(b_l + b_r)
            b_C = (b_C if b_C is not None else 0) + (columns(b_l) if is_cat else b_l.view(K, D).mean(0))
    keywords = {"f_in": W_CF.shape[1], "f_out": K * D if is_cat else D, "heads": K, "slope": float(slope)}
    keywords |= {"attention": "v2" if is_v2 else "v1", "merge": "cat" if is_cat else "mean", "bias": b_C is not None}
    tensors |= {"W_FC": _rows(columns(W_CF), order)} | ({} if b_C is None else {"b_C": b_C})
    return _Converted("GAT", keywords, tensors, out)


def _gin(part: _Part, order) -> _Converted:
    part.expect(flow="source_to_target")
    inner = part.get("nn", None)
    kinds = [type(module).__name__ for module in inner] if isinstance(inner, nn.Sequential) else None
    act = type(getattr(inner, "act", None)).__name__ if hasattr(inner, "lins") else "ReLU"  # PyG's MLP
    names = [name for name in part.tensors if name.startswith("nn.") and name.endswith(".weight")]
    found = ", ".join(kinds or names)
    if kinds not in (None, ["Linear", "ReLU", "Linear"]) or len(names) != 2 or act != "ReLU":
        raise UsageError(f"{part.where} has nn of {found}; only Linear, ReLU, Linear can be converted")
    W_1, W_2 = part.take(names[0]), part.take(names[1])
    b_1, b_2 = (part.take(name.removesuffix("weight") + "bias", is_needed=False) for name in names)
    eps = part.take("eps")
    keywords = {"f_in": W_1.shape[1], "f_out": W_2.shape[0], "hidden": W_1.shape[0], "eps": float(eps)}
    keywords |= {
        "train_eps": isinstance(part.get("eps", None), nn.Parameter),
        "bias": not (b_1 is None and b_2 is None),
    }
    tensors = {"W_1": _rows(W_1, order), "W_2": W_2.T} | ({"eps": eps} if keywords["train_eps"] else {})
    return _Converted("GIN", keywords, tensors | ({"b_1": b_1, "b_C": b_2} if keywords["bias"] else {}))


CONVERT: dict[str, Callable[[_Part, Any], _Converted]] = {
    "GCNConv": _gcn, "SAGEConv": _sage, "GATConv": _gat, "GATv2Conv": _gat, "GINConv": _gin, "Linear": _linear,
}  # fmt: skip
