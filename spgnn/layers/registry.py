"""Families of models that options describe: a name, the options that a family has, and what builds its Stack.

families.py, which builds those of spgnn, is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..config import TrainConfig, build
from ..config.fields import Registry, check_known
from ..config.groups import ModelConfig, OnConfig, OperatorConfig
from ..config.names import MODELS, Norm
from ..errors import UsageError, check_integer, nearest

if TYPE_CHECKING:  # options are checked without torch
    import torch

    from .stack import Stack

Build = Callable[..., "Stack"]


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one kind.

    options      the fields of TrainConfig that describe a model of the family.
    make         (f_in, n_classes, options) -> Stack; options is a TrainConfig.
    reads        what make takes besides, of READ: f_edge, the attributes of an edge; relations of messages and types of
                 nodes.
    """

    options: tuple[str, ...]
    make: Build
    reads: tuple[str, ...] = ()


ATTRIBUTES, RELATIONS = ("f_edge",), ("message_relations", "types")
READ = {
    "f_edge": "reads attributes of edges, and this graph has none: give them to `spgnn convert --edge-features`, or "
    "graph_from_coo(..., edge_attr=E_EF)",
    "message_relations": "reads relations, the classes of edges, and some or all edges of this graph have none: give "
    "them to `spgnn convert --edge-labels`, or graph_from_coo(..., edge_y=relation_E)",
}


def _built_in(name: str, *options: str, reads: tuple[str, ...] = ()) -> Family:
    def make(f_in: int, n_classes: int, config: TrainConfig, *of_edges: int) -> Stack:
        return getattr(import_module(".families", __package__), name)(f_in, n_classes, config, *of_edges)

    return Family(options, make, reads)


# Layers that a ModelSpec may list: file -> classes.
FILES = {
    "convolutions": ("GCN", "SAGE", "GIN", "GAT"),
    "propagation": ("SGC", "APPNP", "LightGCN", "GCNII", "MixHop"),
    "dense": ("MLP", "NGNN"),
    "edge_layers": ("EdgeEncoder", "EdgeMLP", "EdgeDecoder", "GINE", "NNConv", "Transformer", "PNA", "GatedGCN"),
    "relation_layers": ("RGCN", "RGAT", "HGT"),
}
CLASSES = {name: file for file, names in FILES.items() for name in names}
LISTED = "layers"  # a ModelSpec of layers that are listed: [class, keywords] of each, and the keywords of the Stack
DENSE = ("hidden", "layers", "act", "bias", "dropout", "input_dropout")
DEEP = (*DENSE, "norm", "residual", "jump", "classifier")
FAMILIES: Registry[Family] = Registry("family", MODELS, "@spgnn.layers.family('wide', 'hidden')")
FAMILIES |= {
    "gcn": _built_in("gcn", *DEEP),
    "sage": _built_in("sage", *DEEP, "aggregator", "combine"),
    "gat": _built_in("gat", *DEEP, "heads", "heads_out", "attention", "attention_dropout"),
    "gin": _built_in("gin", *DEEP),
    "mixhop": _built_in("mixhop", *DEEP, "powers"),
    "sgc": _built_in("sgc", "layers", "powers", "bias", "dropout", "input_dropout"),
    "appnp": _built_in("appnp", *DENSE, "powers", "teleport"),
    "lightgcn": _built_in("lightgcn", "layers", "dropout", "input_dropout"),
    "gcnii": _built_in("gcnii", *DENSE, "teleport"),
    "ngnn": _built_in("ngnn", *DEEP),
    "mlp": _built_in("mlp", *DENSE, "norm", "residual"),
    "meshgraphnet": _built_in("meshgraphnet", "hidden", "layers", "act", reads=ATTRIBUTES),
    "gine": _built_in("gine", *DEEP, reads=ATTRIBUTES),
    "transformer": _built_in("transformer", *DEEP, "heads", reads=ATTRIBUTES),
    "pna": _built_in("pna", *DEEP, reads=ATTRIBUTES),
    "gatedgcn": _built_in("gatedgcn", "hidden", "layers", "dropout", "input_dropout", reads=ATTRIBUTES),
    "rgcn": _built_in("rgcn", *DENSE, "norm", "residual", reads=RELATIONS),
    "rgat": _built_in("rgat", *DENSE, "norm", "residual", "heads", reads=RELATIONS),
    "hgt": _built_in("hgt", *DENSE, "norm", "residual", "heads", reads=RELATIONS),
}


def reads_relations(model: str) -> bool:
    """Return whether edges have relations for a family; False for one that is not known."""
    return model in FAMILIES and RELATIONS == FAMILIES[model].reads


def with_relations(graph: Any, model: str) -> Any:
    """Return a graph as a family reads it: typed, so that each edge has its inverse, where that reads relations."""
    if graph.edge_y is None or graph.edges != "stored" or not reads_relations(model):
        return graph
    return replace(graph, meta=graph.meta | {"typed": True})


def family(name: str, *options: str) -> Callable[[Build], Build]:
    """Register a function (f_in, n_classes, options) -> Stack as `--model NAME` of this process.

        @spgnn.layers.family("wide", "hidden", "dropout")
        def wide(f_in, n_classes, options):
            return Stack(GCN(f_in, options.hidden, act="relu"), GCN(options.hidden, n_classes), dropout=options.dropout)

    A name can be registered again, except a built-in one.

    Args:   options  the options of a model that the function reads; others are refused beside this family.
    Raises: UsageError for a built-in name and for an option that no model has.
    """
    FAMILIES.check_name(name)
    known = [field.name for field in fields(ModelConfig) if field.name != "model"]
    for option in options:
        if option not in known:
            raise UsageError(f"family {name!r}: no model has an option {option!r}{nearest(option, known)}")

    def decorate(make: Build) -> Build:
        FAMILIES[name] = Family(options, make)
        return make

    return decorate


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Family and arguments of a model: JSON values that rebuild it without its weights.

    family     its name, or `layers`: those of a Stack, see listed_spec.
    arguments  f_in, n_classes and the options of the family; an option that is missing has its default; on = edges of
               a model of edges, and then f_edge for any family.
    """

    family: str
    arguments: dict[str, Any]

    @classmethod
    def of(cls, config: ModelConfig, f_in: int, n_classes: int, graph: Any = None) -> ModelSpec:
        """Return the model that options describe for a graph with f_in features and n_classes classes.

        With config.on = edges it is the family's to width hidden, and a decoder of edges; with links the family's to width
        hidden, and config.decoder of the relations of the graph's links.
        Args:   graph  Graph or DistGraph, whose edges, links and types of nodes count; None: without any of these.
        Raises: UsageError, see check_options; for a family that reads what edges of the graph do not have.
        """
        check_options(config)
        family, sizes = FAMILIES[config.model], {"f_in": f_in, "n_classes": n_classes}
        on = config.on if isinstance(config, OnConfig) else "nodes"
        reads_attributes = graph is not None and (on == "edges" or family.reads == ATTRIBUTES)
        f_edge = graph.n_edge_features if reads_attributes else 0
        found = (f_edge,) if family.reads == ATTRIBUTES or graph is None else graph.typed_sizes if family.reads else ()
        for name, size in zip(family.reads, found):
            if not size:
                raise UsageError(f"--model {config.model} {READ[name]}")
            sizes[name] = size
        if on == "edges":
            if family.reads == RELATIONS:
                raise UsageError(
                    f"--on edges predicts the classes of edges, which --model {config.model} reads as their relations; take "
                    "another model, or --task links"
                )
            if "hidden" not in family.options:
                raise UsageError(f"--on edges needs layers of width --hidden, and --model {config.model} has none")
            sizes |= {"on": "edges", "f_edge": f_edge}
        if isinstance(config, OnConfig) and on == "links":
            n_relations = 1 if graph is None or graph.links is None else graph.links.n_relations
            width = f_in if config.model == "lightgcn" else config.hidden  # the one that has no weights
            sizes |= {"on": "links", "n_classes": width, "relations": n_relations}
            decoder = config.decoder if config.decoder != "auto" else "dot" if n_relations == 1 else "distmult"
            sizes |= {"decoder": decoder}
        return cls(config.model, sizes | {name: getattr(config, name) for name in family.options})

    def build(self) -> Stack:
        """Return a new model, with weights that are not trained.

        Raises: UsageError for a family that is not known, and for arguments that are unknown or out of bounds.
        """
        if self.family == LISTED:
            return _stack_of(self.arguments)
        family, options = FAMILIES.find(self.family, "--model"), dict(self.arguments)
        on, reads = options.pop("on", "nodes"), tuple(options.pop(name, 0) for name in family.reads)
        f_edge = reads[0] if "f_edge" in family.reads else options.pop("f_edge", 0)
        relations, decoder = options.pop("relations", 1), options.pop("decoder", "dot")
        sizes = {name: options.pop(name, None) for name in ("f_in", "n_classes")}
        for name, size in sizes.items():
            check_integer(name, size, 1)
        for name, value in zip(("f_edge", *family.reads), (f_edge, *reads)):
            check_integer(name, value, int(name in family.reads))
        check_known(self.family, options, family.options)
        config, (f_in, n_classes) = build(TrainConfig, options | {"model": self.family}), sizes.values()
        make = lambda f_out: family.make(f_in, f_out, config, *reads)
        if on == "nodes":
            return make(n_classes)
        if on == "links":
            from .decoders import DECODERS

            model = make(n_classes)
            model.decoder = DECODERS.find(decoder, "--decoder")(n_classes, relations)
            return model
        from .families import on_edges

        return on_edges(make(config.hidden), n_classes, f_edge)


def check_options(config: ModelConfig) -> None:
    """Raise UsageError for a family that is not known, and for an option that only others have."""
    FAMILIES.find(config.model, "--model")
    for field in fields(config):
        takers = [name for name, family in FAMILIES.items() if field.name in family.options]
        if field.name == "hidden" and getattr(config, "on", "") == "links":  # the width of the rows that are scored
            continue
        if takers and config.model not in takers and getattr(config, field.name) != field.default:
            flag, few = "--" + field.name.replace("_", "-"), f"is an option of --model {' and '.join(takers)}"
            what = few if len(takers) < 4 else "is no option of this family"
            raise UsageError(f"{flag} {what}; omit it with --model {config.model}")
    _check_values(config)


def _check_values(config: ModelConfig) -> None:
    """Raise UsageError for values of options that do not fit each other, in the words of the command line."""
    has_hidden = config.layers > 1 or config.classifier
    if config.model in ("gat", "transformer") and has_hidden and config.hidden % config.heads:
        fit = max(k for k in range(1, config.heads) if config.hidden % k == 0)
        raise UsageError(
            f"--heads {config.heads} does not divide --hidden {config.hidden}; the next smaller that does is {fit}"
        )
    if config.model == "sage" and (config.aggregator, config.combine) == ("gcn", "cat"):
        raise UsageError("--aggregator gcn has no product of a node's own row for --combine cat; use --combine add")
    if config.jump != "none" and not has_hidden:
        raise UsageError(f"--jump {config.jump} requires --layers 2 or more, or --classifier")
    powers = config.powers or 2
    if config.model == "mixhop" and has_hidden and config.hidden <= powers:
        raise UsageError(f"--hidden {config.hidden} has no column for each of the {powers + 1} powers; raise --hidden")


def model_title(config: ModelConfig) -> str:
    """Return family, depth and width of a model: gcn, 2 layers, hidden 128.

    Raises: UsageError for a family that is not known.
    """
    options = FAMILIES.find(config.model, "--model").options
    words = {"layers": f"{config.layers} layer{'s' * (config.layers != 1)}", "hidden": f"hidden {config.hidden}"}
    return ", ".join([config.model, *(text for name, text in words.items() if name in options)])


def operator_of(config: ModelConfig, spec: ModelSpec | None = None) -> Norm:
    """Return --operator; for auto the first layer's: gcn where it names none, loops where no layer multiplies.

    Args:   spec  the model; None: of the options, on a graph of any widths.
    Raises: UsageError for what check_options refuses, options that do not fit each other, and an operator without effect.
    """
    import torch

    from .layer import hops_of
    from .stack import norms_of

    with torch.device("meta"):  # no memory, whatever the widths are
        any_graph = SimpleNamespace(n_edge_features=2, typed_sizes=(2, 1), links=None)
        model = (spec or ModelSpec.of(config, 2, 2, any_graph)).build()
    multiplies = any(hops_of(layer) != 0 for layer in getattr(model, "layers", [model]))
    norms, named = norms_of(model), config.operator if isinstance(config, OperatorConfig) else "auto"
    if named == "auto":
        return (norms[0] or "gcn") if multiplies else "loops"  # the pattern of gcn, and no sums that are divided by
    if multiplies and None not in norms:
        raise UsageError(
            f"--operator {named} has no effect on --model {config.model}, whose layers multiply with "
            f"{' and '.join(map(str, norms))}; omit --operator"
        )
    return named


def listed_spec(model: torch.nn.Module) -> ModelSpec:
    """Return the ModelSpec of a Stack by its layers and their arguments.

    Raises: UsageError naming the first layer that only its own code can rebuild.
    """
    from .decoders import DECODERS
    from .stack import Stack

    remedy = "only its own code can rebuild it: keep model.state_dict()"
    if type(model) is not Stack or "forward" in vars(model):
        raise UsageError(f"the model is a {type(model).__name__}, not a plain Stack; {remedy}")

    def listed(number: int, layer) -> list:
        name = type(layer).__name__
        is_ours = type(layer).__module__ == f"{__package__}.{CLASSES.get(name)}"
        if not is_ours or layer.has_other_act or "forward" in vars(layer):
            raise UsageError(f"layer {number} is a custom {name}; {remedy}")
        return [
            name,
            {key: listed(number, value) if key == "layer" else value for key, value in layer.made_with.items()},
        ]

    layers = [listed(number, layer) for number, layer in enumerate(model.layers, start=1)]
    more = {name: getattr(model, name) for name in ("dropout", "input_dropout", "jump")}
    if model.decoder is not None:
        name = next((name for name, kind in DECODERS.items() if kind is type(model.decoder)), None)
        if name is None:
            raise UsageError(f"the decoder is a custom {type(model.decoder).__name__}; {remedy}")
        more |= {"decoder": [name, model.decoder.F, model.decoder.n_relations]}
    sizes = {"f_in": model.layers[0].f_in, "n_classes": model.layers[-1].f_out}
    return ModelSpec(LISTED, sizes | {"layers": layers} | more)


def _stack_of(arguments: dict[str, Any]) -> Stack:
    """Return the Stack of layers that are listed."""
    from .decoders import DECODERS
    from .stack import Stack

    def made(name: str, keywords: dict[str, Any]):
        if name not in CLASSES:
            raise UsageError(f"layer {name!r} is not known{nearest(name, CLASSES)}")
        nested = {key: made(*value) for key, value in keywords.items() if key == "layer"}
        return getattr(import_module(f".{CLASSES[name]}", __package__), name)(**keywords | nested)

    more = {name: arguments[name] for name in ("dropout", "input_dropout", "jump") if name in arguments}
    if "decoder" in arguments:
        name, F, n_relations = arguments["decoder"]
        more["decoder"] = DECODERS.find(name, "--decoder")(F, n_relations)
    return Stack(*(made(name, keywords) for name, keywords in arguments["layers"]), **more)
