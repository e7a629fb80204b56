"""The options of each command and of `distribute`, composed from groups."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from ..errors import SpgnnError
from . import groups
from .fields import changed, option
from .names import LinkLoss, Norm, Prune

LISTED = {"metavar": "NAME,..."}
METHODS = LISTED | {"help": "partitioners, see below"}


@dataclass(frozen=True, kw_only=True)
class Distribution(
    groups.OperatorConfig,
    groups.FeatureConfig,
    groups.PrecisionConfig,
    groups.ProductConfig,
    groups.SeedConfig,
    groups.PartitionerConfig,
    groups.BalanceConfig,
    groups.ExchangeConfig,
    groups.WireConfig,
    groups.MachineConfig,
    groups.HardwareConfig,
    groups.HostsConfig,
):
    """The options of `distribute`: how a graph is partitioned, exchanged and computed with."""

    operator: Norm = changed(groups.OperatorConfig, "operator", "gcn")


@dataclass(frozen=True, kw_only=True)
class Training(
    groups.OptimiserConfig,
    groups.EvaluationConfig,
    groups.SeedConfig,
    groups.SplitConfig,
    groups.OnConfig,
    groups.PruneConfig,
    groups.ModeConfig,
    groups.SamplerConfig,
    groups.AverageConfig,
):
    """The options of `spgnn.train`: those that training itself reads."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    groups.ModelConfig,
    groups.PrecisionConfig,
    groups.OptimiserConfig,
    groups.EvaluationConfig,
    groups.SeedConfig,
    groups.ModeConfig,
    groups.OutputConfig,
    groups.FeatureConfig,
    groups.OnConfig,
    groups.SplitConfig,
    groups.EdgesConfig,
    groups.OperatorConfig,
    groups.SourceConfig,
    groups.PartitionerConfig,
    groups.PartsConfig,
    groups.HardwareConfig,
    groups.CudaConfig,
    groups.ExchangeConfig,
    groups.WireConfig,
    groups.ScheduleConfig,
    groups.PruneConfig,
    groups.SamplerConfig,
    groups.AveragePartsConfig,
    groups.AverageConfig,
    groups.PersonalConfig,
):
    """The options of `spgnn train`, in the order of its help: the most used first."""

    features: str = changed(groups.SourceConfig, "features", "", help=".npy .npz table; degree ones identity embedding")


@dataclass(frozen=True, kw_only=True)
class PartitionConfig(
    groups.PartitionerConfig,
    groups.BalanceConfig,
    groups.HostsConfig,
    groups.SourceConfig,
    groups.EdgesConfig,
    groups.SplitFileConfig,
    groups.VolumeConfig,
    groups.EntropyConfig,
    groups.OutOfCoreConfig,
):
    """The options of `spgnn partition`."""

    heading = "Partition"
    k: str = option("4", "number of parts; of several nothing is written", metavar="4,16,...", alias="ranks")
    out: str = option("", "folder to write", metavar="DIR")
    seed: int = changed(groups.SeedConfig, "seed", 0, heading="Partition")
    method: str = changed(
        groups.PartitionerConfig, "method", "", help="partitioners [metis; with --memory: spring]", **LISTED
    )


@dataclass(frozen=True, kw_only=True)
class Predicted(
    groups.OnConfig,
    groups.SplitConfig,
    groups.ModelConfig,
    groups.PrecisionConfig,
    groups.ScheduleConfig,
    groups.PruneConfig,
    groups.EvaluationConfig,
    groups.SeedConfig,
):
    """The options that bytes, memory and seconds of a training depend on."""

    loss: Literal["auto", LinkLoss] = option("auto", "of links", metavar="bce|bpr|softmax", heading="Training")
    negatives: int = changed(groups.OptimiserConfig, "negatives", 1, heading="Training")
    batch: int = changed(groups.SamplerConfig, "batch", 0, help="links of an update; 0: all", heading="Training")


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(
    groups.PartitionerConfig,
    groups.PartsConfig,
    groups.WireConfig,
    groups.SourceConfig,
    groups.EdgesConfig,
    groups.OperatorConfig,
    Predicted,
    groups.OverlapConfig,
):
    """The options of `spgnn measure`: those of training with the same defaults, some as lists with commas."""

    heading = "Partition"
    ranks: str = option("", "numbers of ranks P [4, or as --partition]", metavar="4,16,...")
    k: str = option("", "or numbers of parts, P = k c", metavar="4,16,...")
    method: str = changed(groups.PartitionerConfig, "method", groups.PartitionerConfig.method, **METHODS)
    machine: str = changed(
        groups.MachineConfig, "machine", groups.MachineConfig.machine, help="machine of --scheme auto, --simulate"
    )
    scheme: str = changed(groups.ExchangeConfig, "scheme", groups.ExchangeConfig.scheme, **LISTED)
    replication: str = changed(groups.ExchangeConfig, "replication", "1", metavar="1,2,...")
    hosts: int = changed(groups.HostsConfig, "hosts", 0, help="hosts of the ranks; 0: one, or as simulated")
    simulate: bool = option(False, "predict the seconds of an epoch too", heading="Machine")


@dataclass(frozen=True, kw_only=True)
class PlanConfig(
    groups.PartitionerConfig,
    groups.PartsConfig,
    groups.WireConfig,
    groups.HostConfig,
    groups.OverlapConfig,
    groups.SourceConfig,
    groups.EdgesConfig,
    Predicted,
):
    """The options of `spgnn plan`: those of training, some as lists; lists are separated by commas."""

    heading = "Partition"
    ranks: str = option("", "numbers of ranks P [4, or as --partition]", metavar="4,16,...")
    method: str = changed(groups.PartitionerConfig, "method", groups.PartitionerConfig.method, **METHODS)
    machine: str = changed(
        groups.MachineConfig, "machine", "", help="machine model [this host, as laptop]", heading="Machine"
    )
    scheme: str = changed(
        groups.ExchangeConfig, "scheme", "cover,columns,broadcast,two-tier", help="exchanges", **LISTED
    )
    replication: str = changed(groups.ExchangeConfig, "replication", "1,2", metavar="1,2,...")
    prune: Prune = changed(groups.PruneConfig, "prune", "never")


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(
    groups.ModelConfig,
    groups.OnConfig,
    groups.SourceConfig,
    groups.FeatureConfig,
    groups.EdgesConfig,
    groups.OperatorConfig,
    groups.SeedConfig,
):
    """The options of `spgnn verify`: the model's as in training, and the ranks that are compared with one."""

    heading = "Ranks"
    ranks: str = option("1,2,3,5", "numbers of ranks, all threads of this process", metavar="2,3,...")
    replication: int = changed(
        groups.ExchangeConfig, "replication", 2, help="c of a run in 1.5D, on c*c ranks; 1: none", heading="Ranks"
    )
    seed: int = changed(groups.SeedConfig, "seed", 0, help="seed of partitions, weights and dropout", heading="Ranks")


NAMED = (TrainConfig, PartitionConfig, MeasureConfig, PlanConfig, VerifyConfig, groups.TableConfig)
SpgnnError.keywords |= {f.name: f.name for config in NAMED for f in fields(config)} | {"nodes": "n_nodes"}
SpgnnError.keywords |= {name: name for name in ("graph", "proba", "embeddings", "scratch")}  # of predict
