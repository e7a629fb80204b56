"""Options as frozen dataclasses: one field is a TOML key, a command-line option and a keyword."""

from __future__ import annotations

import json
import math
import numbers
import tomllib
import typing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from .errors import InputError, UsageError, nearest


def option(
    default: Any,
    help: str,
    low: float | None = None,
    high: float | None = None,
    short: str | None = None,
    metavar: str = "",
):
    """Return a dataclass field with its help text and bounds; the command line reads them too."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "short": short, "metavar": metavar})


MOST_SEED = 2**63 - 1
MOST_THREADS = 1024
MOST_HOPS = 127  # of a halo, which counts them in a byte
HUGE = 2**1000  # an integer that is no float
MOST_BALANCE = 1e6
RUN_FILES = (
    "config.toml",
    "env.json",
    "metrics.jsonl",
    "summary.json",
    "predictions.npy",
)  # of the --out folder of `spgnn train`
BALANCE = "largest over mean of the parts: of work with metis and volume, of nodes with spring, spring+ and entropy; others ignore it"
Wire = Literal["float32", "bfloat16", "float16", "int8"]


def is_of_run(folder: Path, path: Path) -> bool:
    """Return whether a path is the folder of a run, or of what a training writes into it."""
    folder, path = folder.resolve(), path.resolve()
    checkpoints = (folder / "checkpoints").resolve()
    return path in (folder, *(folder / name for name in RUN_FILES)) or checkpoints in (path, *path.parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """How GRAPH is read: what its own files do not say."""

    format: str = option("", "format of GRAPH; guessed when left out")
    features: str = option("", "features in a file of their own: .npy (N, F) or SciPy CSR .npz")
    labels: str = option("", "labels in a file of their own: .npy (N,) or (N, classes)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(SourceConfig):
    """What one training run is: the options of `spgnn train`."""

    model: Literal["gcn"] = option("gcn", "architecture")
    hidden: int = option(128, "width of the hidden layers", low=1, high=1_000_000)
    layers: int = option(2, "number of layers", low=1, high=1000)
    epochs: int = option(100, "passes over the graph", low=1)
    lr: float = option(0.01, "learning rate", low=0, high=1e30)
    optimizer: Literal["adam", "sgd"] = option("adam", "update rule")
    weight_decay: float = option(0.0, "L2 penalty", low=0, high=1e30)
    decay_layers: Literal["all", "first"] = option("all", "layers that weight decay acts on; first: Kipf & Welling's")
    dropout: float = option(0.0, "probability that an input of a layer is zeroed", low=0, high=0.999)
    input_dropout: bool = option(True, "dropout acts on the input features too")
    norm: Literal["none", "layer"] = option("none", "normalisation of hidden activations")
    residual: bool = option(False, "add a layer's input to its output where the widths agree")
    bias: bool = option(True, "layers have a bias")
    operator: Literal["gcn", "row", "none"] = option("gcn", "how the adjacency is normalised")
    edges: Literal["undirected", "directed", "reversed"] = option("undirected", "how the stored edges are used")
    feature_norm: Literal["none", "row"] = option("none", "row: features of a node sum to 1 (Kipf & Welling's)")
    dtype: Literal["float32", "float64", "bfloat16"] = option(
        "float32", "type of activations; weights of bfloat16 ones are float32"
    )
    seed: int = option(0, "seed of weights, dropout, random split and partition", low=0, high=MOST_SEED)
    split: str = option(
        "auto", "random, given, the number of one of several given splits, or auto: given if there is one, else random"
    )
    method: str = option(
        "metis", "partitioner: metis, volume, entropy, spring, spring+, dbh, greedy, hdrf, 2psl, block, random"
    )
    balance: float = option(1.03, BALANCE, low=1, high=MOST_BALANCE)
    partition: str = option("", "folder that `spgnn partition` wrote, used instead of method")
    scheme: Literal["auto", "cover", "columns", "broadcast"] = option(
        "auto", "exchange scheme; auto: what the cost model finds faster"
    )
    replication: int = option(
        1, "replication factor c of 1.5D, whose square divides the number of ranks; 1 is 1D", low=1
    )
    wire: Wire = option("float32", "type of the rows that travel forward; float32: the activations' own")
    wire_gradients: Wire = option("float32", "type of the rows that travel backward; float32: the activations' own")
    order: Literal["auto", "spmm_first"] = option(
        "auto", "order of each chain A H W; auto: the narrower product travels"
    )
    keep: bool = option(True, "compute A X once where nothing changes X")
    locality: bool = option(True, "order own rows so that products read from caches more often")
    prune: Literal["auto", "always", "never"] = option(
        "auto", "training steps compute only the rows that reach a training node"
    )
    mode: Literal["full"] = option("full", "full: all nodes at once")
    sampler: Literal["none"] = option("none", "subgraph sampler")
    machine: str = option(
        "laptop", "machine of the cost model that scheme auto asks: a name or FILE.toml of spgnn doctor"
    )
    device: Literal["cpu", "cuda"] = option(
        "cpu", "where products, activations and exchanges are; cuda: a GPU for each rank of a host"
    )
    tf32: bool = option(False, "dense products of float32 in TF32, of 10 mantissa bits, where the GPU has it")
    cuda_graph: bool = option(False, "replay the steps as CUDA graphs, recorded once; one rank on a GPU")
    patience: int = option(0, "stop after so many epochs without a better validation score; 0: never", low=0)
    eval_every: int = option(1, "epochs between evaluations", low=1)
    threads: int = option(0, "threads a rank; 0: the cores of the host over its ranks", low=0, high=MOST_THREADS)
    watchdog: float = option(600.0, "seconds without progress after which the job is ended; 0: never", low=0)
    log_view: bool = option(False, "print calls, seconds and balance of each phase at the end")
    trace: str = option("", "file for a timeline of all ranks, in Chrome's trace format")
    out: str = option("", "folder for metrics, predictions and checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig(SourceConfig):
    """The options of `spgnn partition`."""

    k: int = option(4, "number of parts", low=1, short="k")
    method: str = option(
        "",
        "partitioner: metis (default), volume, entropy, block, random, or a streaming one: spring (default with --memory), spring+, dbh, greedy, hdrf, 2psl",
    )
    objective: str = option(
        "", "metis: cut (default) or vol; volume: the scheme it minimises, columns (default) or cover"
    )
    effort: float = option(1.0, "of volume: sweeps, on meshes regions too; 2 takes twice as long", low=0.001, high=1000)
    start: str = option("metis", "of volume: the partitioner that it refines")
    send: bool = option(True, "of volume: hold the largest send down, not the total alone")
    receive: bool = option(False, "of volume: hold the largest receive down too")
    c: float = option(1.0, "of entropy: weight of the similarity of features against that of degrees", low=0, short="c")
    floor: int = option(1, "of entropy: least weight of an edge", low=1)
    fanout: int = option(25, "of entropy: neighbours that are sampled a node, which degrees are held against", low=1)
    similarity: Literal["cosine", "dot"] = option("cosine", "of entropy: how features are compared")
    seed: int = option(0, "seed", low=0, high=MOST_SEED)
    balance: float = option(1.03, BALANCE, low=1, high=MOST_BALANCE)
    edges: Literal["undirected", "directed", "reversed"] = option("undirected", "how the stored edges are used")
    out: str = option("", "folder to write")
    split: str = option(
        "", "split in a file of its own: .npy (N,) or (N, S): 0 train, 1 val, 2 test, -1 none", metavar="FILE"
    )
    memory: str = option(
        "", "out of core, with a streaming method: the most memory to take, such as 2GB", metavar="SIZE"
    )
    hops: int = option(
        1, "with --memory: hops of the halo that each part keeps of its neighbours; 0: none", low=0, high=MOST_HOPS
    )
    nodes: int = option(
        0, "with --memory: number of nodes, where the last ones have no edge; 0: as the files say", low=0
    )
    relabel: bool = option(
        False, "with --memory: ids have gaps or exceed 2^31; number them by rising value, see ids.npy"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureConfig(SourceConfig):
    """The options of `spgnn measure`; lists are comma-separated on the command line."""

    k: str = option("4", "numbers of parts; ranks are k times the replication", short="k")
    method: str = option(
        "metis", "partitioners: metis, volume, entropy, spring, spring+, dbh, greedy, hdrf, 2psl, block, random"
    )
    scheme: str = option("columns", "exchange schemes: broadcast, columns, cover")
    replication: str = option("1", "replication factors c of 1.5D, each a divisor of k")
    widths: str = option("", "layer widths, input to output; default: features, 128, classes")
    order: Literal["auto", "spmm_first"] = option(
        "auto", "order of each chain A H W; auto: the narrower product travels"
    )
    keep: bool = option(True, "compute A X once where nothing changes X")
    prune: bool = option(False, "training steps compute only the rows that reach a training node")
    wire: Wire = option("float32", "type of the rows that travel forward")
    wire_gradients: Wire = option("float32", "type of the rows that travel backward")
    simulate: bool = option(False, "print the seconds of an epoch on a machine")
    machine: str = option(
        "perlmutter-like", "of the simulation: a machine that comes along, or a file of `spgnn doctor --calibrate`"
    )
    overlap: bool = option(True, "of the simulation: exchanges run behind the own block's product")
    seed: int = option(0, "seed", low=0, high=MOST_SEED)
    balance: float = option(1.03, BALANCE, low=1, high=MOST_BALANCE)
    edges: Literal["undirected", "directed", "reversed"] = option("undirected", "how the stored edges are used")
    partition: str = option("", "folder that `spgnn partition` wrote, used instead of k and method")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig(SourceConfig):
    """The options of `spgnn plan`; lists are comma-separated on the command line."""

    ranks: str = option("", "numbers of ranks P; default: 4, or what fits --partition")
    method: str = option(
        "metis", "partitioners: metis, volume, entropy, spring, spring+, dbh, greedy, hdrf, 2psl, block, random"
    )
    scheme: str = option("cover,columns,broadcast", "exchange schemes")
    replication: str = option("1,2", "replication factors c; one that does not fit a number of ranks is left out")
    machine: str = option(
        "",
        "machine file of `spgnn doctor --calibrate`, or the name of one that comes along; default: this host, as laptop",
    )
    ranks_per_host: int = option(0, "ranks on each host; 0: as the machine file has it", low=0, high=1_000_000)
    memory: float = option(0.0, "GB of memory of a host; 0: as the machine file has it", low=0, high=1_000_000)
    device: Literal["cpu", "cuda"] = option(
        "cpu", "as train has it; cuda: the memory of a GPU for each rank is predicted too"
    )
    device_memory: float = option(0.0, "GB of memory of a GPU; 0: that of the one here", low=0, high=1_000_000)
    hidden: int = option(128, "width of the hidden layers", low=1, high=1_000_000)
    layers: int = option(2, "number of layers", low=1, high=1000)
    widths: str = option("", "layer widths, input to output, in place of hidden and layers")
    dropout: float = option(0.0, "as train has it", low=0, high=0.999)
    input_dropout: bool = option(True, "dropout acts on the input features too")
    norm: Literal["none", "layer"] = option("none", "normalisation of hidden activations")
    residual: bool = option(False, "add a layer's input to its output where the widths agree")
    dtype: Literal["float32", "float64", "bfloat16"] = option("float32", "type of activations")
    wire: Wire = option("float32", "type of the rows that travel forward")
    wire_gradients: Wire = option("float32", "type of the rows that travel backward")
    order: Literal["auto", "spmm_first"] = option(
        "auto", "order of each chain A H W; auto: the narrower product travels"
    )
    keep: bool = option(True, "compute A X once where nothing changes X")
    prune: bool = option(False, "training steps compute only the rows that reach a training node")
    overlap: bool = option(True, "exchanges run behind the own block's product")
    edges: Literal["undirected", "directed", "reversed"] = option("undirected", "how the stored edges are used")
    seed: int = option(0, "seed of the partitioners", low=0, high=MOST_SEED)
    balance: float = option(1.03, BALANCE, low=1, high=MOST_BALANCE)
    partition: str = option(
        "", "folder that `spgnn partition` wrote, used instead of method: each rank then reads its own part only"
    )


def build(cls, values: dict[str, Any], where: str = "options"):
    """Return cls(**values), each value checked against its field.

    Raises: UsageError with the nearest known name for an unknown key, and the bounds or choices.
    """
    known = {f.name: f for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    checked = {}
    for name, value in values.items():
        name = name.replace("-", "_")
        if name not in known:
            raise UsageError(f"{where}: unknown key {name!r}{nearest(name, known)}")
        checked[name] = _check(where, name, value, hints[name], known[name].metadata)
    return cls(**checked)


def read_toml(cls, path: str | Path, overrides: dict[str, Any] | None = None):
    """Return cls from a TOML file, with overrides on top.

    Raises: InputError where the file is not TOML; UsageError for an unknown key or a bad value.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; expected TOML, as config.toml of a run")
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from None
    values.pop("graph", None)
    config = build(cls, values, str(path))
    return replace(config, **_fields_of(build(cls, overrides or {}), overrides or {}))


def to_toml(config, extra: dict[str, Any] | None = None) -> str:
    """Return the TOML text of a config; reading it gives the same config."""
    lines = [f"{key} = {_toml(value)}" for key, value in (extra or {}).items()]
    return "\n".join(lines + [f"{f.name} = {_toml(getattr(config, f.name))}" for f in fields(config)]) + "\n"


def _fields_of(config, names):
    return {name.replace("-", "_"): getattr(config, name.replace("-", "_")) for name in names}


def _check(where, name, value, hint, metadata):
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UsageError(f"{where}: {name} = {value!r} is not known{nearest(value, choices)}")
        return value
    if hint in (int, float) and isinstance(value, numbers.Number) and hasattr(value, "item"):  # of NumPy
        value = value.item()
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < HUGE else math.inf if value > 0 else -math.inf
    if hint is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UsageError(f"{where}: {name} = {value!r} is {type(value).__name__}; expected {hint.__name__}")
    if hint is str and not _is_text(value):
        raise UsageError(f"{where}: {name} = {value!r}; expected text that UTF-8 can hold, without a zero byte")
    low, high = metadata["low"], metadata["high"]
    is_within = hint is not float or math.isfinite(value)
    if hint in (int, float) and not (is_within and (low is None or value >= low) and (high is None or value <= high)):
        limits = [
            f"at least {low}",
            *([f"at most {high}"] if high is not None else []),
            *([] if is_within else ["finite"]),
        ]
        span = " and ".join(limits)
        shown = (
            f"{value:g}"
            if isinstance(value, float)
            else str(value)
            if abs(value) < HUGE
            else f"an integer of {value.bit_length()} bits"
        )
        raise UsageError(f"{where}: {name} = {shown}; expected {span}")
    return value


def _is_text(value: str) -> bool:
    try:
        return b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False


def _toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a TOML string, but for that
    return repr(value)
