"""Groups of options, each declared once, of which commands.py composes commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import names
from .fields import option
from .names import LinkLoss, Metric, Norm, NumberLoss, Scheme

MOST_SEED, MOST_THREADS, MOST_BALANCE = 2**63 - 1, 1024, 1e6
MOST_HOPS = 127  # of a halo, which counts them in a byte


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """How GRAPH is read, and what its own files do not have."""

    heading = "Graph"
    format: str = option("", "format of GRAPH; guessed if omitted")
    features: str = option("", ".npy, CSR .npz or table; or degree, ones, identity", metavar="FILE")
    labels: str = option("", ".npy (N,) or (N, C), or table[:COLUMNS]", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class SplitFileConfig:
    """Which nodes train, validate and test, as a file."""

    heading = "Graph"
    split: str = option("", "0 train, 1 val, 2 test, -1 none: .npy or table", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Which columns of tables are read, and what becomes of edges that a file has twice."""

    heading = "Tables"
    source: str = option("", "column of sources, or its number", metavar="COLUMN")
    target: str = option("", "column of targets, or its number", metavar="COLUMN")
    weight: str = option("", "column of weights; none: no weights", metavar="COLUMN")
    relabel: bool = option(False, "number the ids, which are kept")
    id: str = option("", "column of ids in tables of nodes", metavar="COLUMN")
    one_hot: str = option("", "text columns, a feature for each value", metavar="COLUMNS")
    missing: Literal["refuse", "zero", "mean"] = option("refuse", "features without a value")
    duplicates: names.Duplicates = option("auto", "edges there twice; auto: sums of weights")
    edge_features: str = option("", "columns of edges; or a .npy, a row per edge", metavar="COLUMNS|FILE")
    antisymmetric: str = option("", "of these, those that a reverse edge negates", metavar="COLUMNS")
    edge_labels: str = option("", "column of classes or numbers of edges; or a .npy", metavar="COLUMN|FILE")
    edge_split: str = option("", "column of train, val, test of edges; or a .npy", metavar="COLUMN|FILE")
    combine: Literal["refuse", "sum", "max", "mean"] = option("refuse", "weights of two directions")
    bipartite: bool = option(False, "ids of the two columns are different nodes")
    cutoff: str = option("", "of a folder of tables: the last time of messages", metavar="COLUMN=VALUE")


@dataclass(frozen=True, kw_only=True)
class EdgesConfig:
    """In which direction edges are used."""

    heading = "Graph"
    edges: names.Edges = option("auto", "in: a node reads those that point to it", metavar="auto|both|in|out")


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """What a layer multiplies with."""

    heading = "Graph"
    operator: Literal["auto", Norm] = option("auto", "normalisation of A; auto: the model's")


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """What a layer reads first."""

    heading = "Graph"
    feature_norm: Literal["none", "row"] = option("none", "row: features of a node sum to 1")


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Which nodes train, validate and test."""

    heading = "Graph"
    split: str = option("auto", "auto: given if there is one, else random", metavar="auto|given|random|N|FILE")


@dataclass(frozen=True, kw_only=True)
class OnConfig:
    """What a model predicts."""

    heading = "Graph"
    on: names.On = option("nodes", "what is predicted: nodes, edges or links", alias="task", metavar="NAME")
    decoder: str = option("auto", "of links: dot, distmult, complex, mlp", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The layers of a model. Each family of models has some of these options, see spgnn.layers.registry."""

    heading = "Model"
    model: str = option("gcn", "family, such as sage or gat, see --help all", metavar="NAME")
    hidden: int = option(128, "width of the hidden layers", low=1, high=1_000_000)
    layers: int = option(2, "number of layers", low=1, high=1000)
    dropout: float = option(0.0, "probability to zero an input of a layer", low=0, high=0.999)
    input_dropout: bool = option(True, "dropout acts on the features too")
    act: names.Activation = option("relu", "activation of the hidden layers")
    norm: names.LayerNorm = option("none", "normalisation of hidden activations")
    residual: bool = option(False, "residual connections where widths agree")
    bias: bool = option(True, "layers have a bias")
    jump: names.Jump = option("none", "the last layer reads all layers, joined")
    classifier: bool = option(False, "a dense layer after the last layer")
    aggregator: names.Aggregator = option("mean", "how sage joins neighbours")
    combine: names.Combine = option("add", "how sage joins a node and its neighbours")
    heads: int = option(8, "heads of a hidden layer of gat, rgat, hgt", low=1, high=1024)
    heads_out: int = option(1, "heads of the last layer of gat, averaged", low=1, high=1024)
    attention: names.Attention = option("v1", "v1: GAT; v2: GATv2")
    attention_dropout: float = option(0.0, "probability to drop an edge of a head", low=0, high=0.999)
    powers: int = option(0, "powers of A that are used; 0: see below", low=0, high=1000)
    teleport: float = option(0.1, "share of the input in a step, appnp, gcnii", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """The type that a model computes in."""

    heading = "Model"
    dtype: names.Dtype = option("float32", "type of the activations")


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """How weights move, and for how long."""

    heading = "Training"
    epochs: int = option(100, "number of epochs", low=1)
    lr: float = option(0.01, "learning rate", low=0, high=1e30)
    optimizer: Literal["adam", "adamw", "sgd"] = option("adam", "update rule")
    weight_decay: float = option(0.0, "L2 penalty; of adamw the decay", low=0, high=1e30)
    decay_layers: Literal["all", "first"] = option("all", "layers that weight decay acts on")
    loss: Literal["auto", NumberLoss, LinkLoss] = option(
        "auto", "mse, mae, huber; of links bce, bpr, softmax", metavar="NAME"
    )
    negatives: int = option(1, "negatives drawn for each link", low=1, high=10_000)
    metric: Literal["auto", Metric] = option("auto", "score that decides: accuracy, micro_f1, r2", metavar="NAME")
    patience: int = option(0, "stop after N epochs without progress; 0: never", low=0)


@dataclass(frozen=True, kw_only=True)
class ModeConfig:
    """What a training step is."""

    heading = "Training"
    mode: names.Mode = option("full", "layers on disk, or average of parts")


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """Subgraphs on which a step trains. Each sampler has some of these options, see spgnn.samplers."""

    heading = "Subgraphs"
    sampler: str = option("none", "train on subgraphs of it", metavar="|".join(("none", *names.SAMPLERS)))
    budget: int = option(8000, "nodes drawn: node, edge, walk, frontier", low=1)
    walk: int = option(2, "steps of a random walk", low=1, high=10_000)
    fanout: str = option("25,10", "neighbours per layer, input layer first", metavar="N,N")
    batch: int = option(0, "targets, 0: 512; parts, 0: 20; links, 0: all", low=0)
    class_balance: float = option(0.0, "share of targets per epoch, rare classes first", low=0, high=1)
    normalise: names.Normalise = option("auto", "undo uneven draws: both, loss, aggregator")
    subgraphs: int = option(1, "subgraphs per step, over all ranks", low=1)
    inductive: bool = option(False, "draw from the training nodes alone")


@dataclass(frozen=True, kw_only=True)
class AverageConfig:
    """How models that are trained on parts become one."""

    heading = "With --mode average"
    interval: int = option(1, "epochs from one average to the next", low=1)
    sync: names.Sync = option("weights", "gradients: averaged before every update")
    correct: names.Correction = option("none", "drift: follow whole-graph gradients")
    evaluation: names.Evaluation = option("auto", "layerwise: one part in memory at a time")
    memory: str = option("", "memory of a rank, such as 2GB [its share]", metavar="SIZE", heading="Hardware")


@dataclass(frozen=True, kw_only=True)
class AveragePartsConfig:
    """Which parts models are trained on."""

    heading = "With --mode average"
    parts: int = option(0, "number of parts; 0: as many as memory needs", low=0)
    hops: int = option(1, "hops of the halo that a part reads", low=0, high=MOST_HOPS)


@dataclass(frozen=True, kw_only=True)
class PersonalConfig:
    """How parts train on alone, and when."""

    heading = "With --mode average"
    personal: int = option(0, "epochs of each part alone, after those of all", low=0)


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """When scores are computed."""

    heading = "Training"
    eval_every: int = option(1, "epochs between evaluations", low=1)


@dataclass(frozen=True, kw_only=True)
class SeedConfig:
    """What is drawn."""

    heading = "Training"
    seed: int = option(0, "seed of everything that is random", low=0, high=MOST_SEED)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The order of products, and what is computed once: as options of a command."""

    heading = "Schedule"
    schedule: names.Schedule = option("auto", "plain: A H before H W, A X not cached")

    @property
    def order(self) -> names.Order:
        """The keyword of `distribute`, see ProductConfig."""
        return "spmm_first" if self.schedule == "plain" else "auto"

    @property
    def keep(self) -> bool:
        """The keyword of `distribute`, see ProductConfig."""
        return self.schedule != "plain"


@dataclass(frozen=True, kw_only=True)
class ProductConfig:
    """The order of products, and what is computed once: as keywords of `distribute`."""

    heading = "Schedule"
    order: names.Order = option("auto", "auto: send the narrower of H and H W")
    keep: bool = option(True, "cache A X if X is constant")
    locality: bool = option(True, "reorder own rows for reuse in the cache")


@dataclass(frozen=True, kw_only=True)
class PruneConfig:
    """Which rows a training step computes."""

    heading = "Schedule"
    prune: names.Prune = option("auto", "skip rows that no training node depends on", alone="always")


@dataclass(frozen=True, kw_only=True)
class PartitionerConfig:
    """Who owns which node."""

    heading = "Partition"
    method: str = option("metis", "partitioner, see --help all")


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """How equal parts are."""

    heading = "Partition"
    balance: float = option(1.03, "largest part over the mean, see below", low=1, high=MOST_BALANCE)


@dataclass(frozen=True, kw_only=True)
class PartsConfig:
    """A partition that was made before."""

    heading = "Partition"
    partition: str = option("", "use the parts that `spgnn partition` wrote", metavar="DIR")


@dataclass(frozen=True, kw_only=True)
class WireConfig:
    """The types that rows have on the wire."""

    heading = "Communication"
    wire: names.Wire = option("float32", "rows sent forward; float32: unchanged")
    wire_gradients: names.Wire = option("float32", "rows sent backward; float32: unchanged")


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """What travels between ranks."""

    heading = "Communication"
    scheme: Literal["auto", "flat", Scheme] = option(
        "auto", "auto: fastest; flat: blind to hosts", alias="exchange", metavar="NAME"
    )
    replication: int = option(1, "replication factor c of 1.5D; c*c divides P", low=1)


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """The machine that predictions are for."""

    heading = "Communication"
    machine: str = option("laptop", "machine model that --scheme auto uses", metavar="NAME|FILE")


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """Where a rank computes."""

    heading = "Hardware"
    device: names.Device = option("cpu", "where to compute; cuda: one GPU per rank")
    threads: int = option(0, "per rank; 0: OMP_NUM_THREADS, or cores / ranks", low=0, high=MOST_THREADS, per_rank=True)


@dataclass(frozen=True, kw_only=True)
class CudaConfig:
    """What only a GPU has."""

    heading = "Hardware"
    cuda_graph: bool = option(False, "replay steps as CUDA graphs; one rank only")


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """What a training writes, and which one is continued."""

    heading = "Output"
    out: str = option("", "folder of the run; none: keep nothing [runs/GRAPH-N]", metavar="DIR|none")
    overwrite: bool = option(False, "replace the run that --out holds")
    trace: str = option("", "timeline for Chrome; prints times per phase", metavar="FILE")
    watchdog: float = option(600.0, "abort after X idle seconds; 0: never", low=0)
    checkpoint_every: float = option(30.0, "seconds between checkpoints; 0: every epoch", low=0)
    resume: str = option("", "continue RUN; auto: the run in --out, if any", metavar="RUN|auto")


@dataclass(frozen=True, kw_only=True)
class OverlapConfig:
    """What runs at the same time."""

    heading = "Machine"
    overlap: bool = option(True, "exchanges overlap with products")


@dataclass(frozen=True, kw_only=True)
class VolumeConfig:
    """Options of the partitioner `volume`."""

    heading = "With --method volume (objective: metis too)"
    objective: str = option("", "volume: columns or cover; metis: cut or vol")
    effort: float = option(1.0, "search effort; 2 takes twice as long", low=0.001, high=1000)
    start: str = option("metis,spring,block", "methods that are refined")
    minimise: Literal["time", "largest", "total"] = option("time", "time: largest + mean / 4")
    receive: bool = option(False, "balance the largest receive too")


@dataclass(frozen=True, kw_only=True)
class EntropyConfig:
    """Options of the partitioner `entropy`."""

    heading = "With --method entropy"
    c: float = option(1.0, "weight of features against degrees", low=0)
    fanout: int = option(25, "neighbours sampled per node", low=1)


@dataclass(frozen=True, kw_only=True)
class OutOfCoreConfig:
    """Options of a partition of a graph that is larger than memory."""

    heading = "Out of core, with a streaming partitioner"
    memory: str = option("", "memory limit, such as 2GB; the rest needs it", metavar="SIZE")
    hops: int = option(1, "hops of the halo of each part in DIR", low=0, high=MOST_HOPS, heading="Partition")
    nodes: int = option(0, "number of nodes; 0: as the files say", low=0)
    relabel: bool = option(False, "renumber ids with gaps or above 2^31")
    edge_features: str = option("", "attributes of edges, .npy, a row per edge", metavar="FILE")
    antisymmetric: str = option("", "of these, those that a reverse edge negates", metavar="COLUMNS")


@dataclass(frozen=True, kw_only=True)
class HostsConfig:
    """The hosts that ranks are on, where no launcher says so."""

    heading = "Partition"
    hosts: int = option(0, "hosts, of equally many ranks each; 0: one host", low=0, high=1_000_000)


@dataclass(frozen=True, kw_only=True)
class HostConfig:
    """The hosts that a plan is for."""

    heading = "Machine"
    ranks_per_host: int = option(0, "ranks per host; 0: as in the machine file", low=0, high=1_000_000)
    memory: str = option("", "memory per host, such as 64GB [as in the file]", metavar="SIZE")
