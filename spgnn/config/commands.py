"""The options of each command and of `distribute`, composed from groups."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import changed, option
from .groups import (
    AverageConfig,
    AveragePartsConfig,
    BalanceConfig,
    CheckpointConfig,
    CudaConfig,
    EdgesConfig,
    EntropyConfig,
    EvaluationConfig,
    ExchangeConfig,
    FeatureConfig,
    HardwareConfig,
    HostConfig,
    MachineConfig,
    ModeConfig,
    ModelConfig,
    OperatorConfig,
    OptimiserConfig,
    OutOfCoreConfig,
    OutputConfig,
    OverlapConfig,
    PartitionerConfig,
    PartsConfig,
    PersonalConfig,
    PrecisionConfig,
    ProductConfig,
    PruneConfig,
    SamplerConfig,
    ScheduleConfig,
    SeedConfig,
    SourceConfig,
    SplitConfig,
    SplitFileConfig,
    VolumeConfig,
    WidthsConfig,
)
from .names import SCHEMES, Device, Norm, Prune

LISTED = {"metavar": "NAME,..."}
METHODS = LISTED | {"help": "partitioners, see below"}


@dataclass(frozen=True, kw_only=True)
class Distribution(
    OperatorConfig,
    FeatureConfig,
    PrecisionConfig,
    ProductConfig,
    SeedConfig,
    PartitionerConfig,
    BalanceConfig,
    ExchangeConfig,
    MachineConfig,
    HardwareConfig,
):
    """The options of `distribute`: how a graph is partitioned, exchanged and computed with."""

    operator: Norm = changed(OperatorConfig, "operator", "gcn")


@dataclass(frozen=True, kw_only=True)
class Training(OptimiserConfig, EvaluationConfig, SeedConfig, SplitConfig, PruneConfig, SamplerConfig, AverageConfig):
    """The options of `spgnn.train`: those that training itself reads."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    ModelConfig,
    PrecisionConfig,
    OptimiserConfig,
    EvaluationConfig,
    SeedConfig,
    ModeConfig,
    OutputConfig,
    CheckpointConfig,
    FeatureConfig,
    SplitConfig,
    EdgesConfig,
    OperatorConfig,
    SourceConfig,
    PartitionerConfig,
    PartsConfig,
    HardwareConfig,
    CudaConfig,
    ExchangeConfig,
    ScheduleConfig,
    PruneConfig,
    SamplerConfig,
    AveragePartsConfig,
    AverageConfig,
    PersonalConfig,
):
    """The options of `spgnn train`, in the order of its help: the most used first."""


@dataclass(frozen=True, kw_only=True)
class PartitionConfig(
    PartitionerConfig,
    BalanceConfig,
    SourceConfig,
    EdgesConfig,
    SplitFileConfig,
    VolumeConfig,
    EntropyConfig,
    OutOfCoreConfig,
):
    """The options of `spgnn partition`."""

    heading = "Partition"
    k: str = option("4", "number of parts; of several nothing is written", metavar="4,16,...", alias="ranks")
    out: str = option("", "folder to write", metavar="DIR")
    seed: int = changed(SeedConfig, "seed", 0, heading="Partition")
    method: str = changed(PartitionerConfig, "method", "", help="partitioners [metis; with --memory: spring]", **LISTED)


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(
    PartitionerConfig,
    PartsConfig,
    ExchangeConfig,
    SourceConfig,
    EdgesConfig,
    OperatorConfig,
    SplitConfig,
    ModelConfig,
    WidthsConfig,
    PrecisionConfig,
    ScheduleConfig,
    PruneConfig,
    EvaluationConfig,
    SeedConfig,
    OverlapConfig,
):
    """The options of `spgnn measure`: those of training with the same defaults, some as lists with commas."""

    heading = "Partition"
    ranks: str = option("", "numbers of ranks P [4, or as --partition]", metavar="4,16,...")
    k: str = option("", "or numbers of parts, P = k c", metavar="4,16,...")
    method: str = changed(PartitionerConfig, "method", PartitionerConfig.method, **METHODS)
    scheme: str = changed(ExchangeConfig, "scheme", ExchangeConfig.scheme, **LISTED)
    replication: str = changed(ExchangeConfig, "replication", "1", metavar="1,2,...")
    machine: str = changed(MachineConfig, "machine", MachineConfig.machine, help="machine of --scheme auto, --simulate")
    ranks_per_host: int = changed(HostConfig, "ranks_per_host", 0, help="ranks per host; 0: all on one host")
    simulate: bool = option(False, "predict the seconds of an epoch too", heading="Machine")


@dataclass(frozen=True, kw_only=True)
class PlanConfig(
    PartitionerConfig,
    PartsConfig,
    ExchangeConfig,
    HostConfig,
    OverlapConfig,
    SourceConfig,
    EdgesConfig,
    SplitConfig,
    ModelConfig,
    WidthsConfig,
    PrecisionConfig,
    ScheduleConfig,
    PruneConfig,
    EvaluationConfig,
    SeedConfig,
):
    """The options of `spgnn plan`: those of training, some as lists; lists are separated by commas."""

    heading = "Partition"
    ranks: str = option("", "numbers of ranks P [4, or as --partition]", metavar="4,16,...")
    method: str = changed(PartitionerConfig, "method", PartitionerConfig.method, **METHODS)
    scheme: str = changed(ExchangeConfig, "scheme", ",".join(SCHEMES), help="exchange schemes", **LISTED)
    replication: str = changed(ExchangeConfig, "replication", "1,2", metavar="1,2,...")
    machine: str = changed(MachineConfig, "machine", "", help="machine model [this host, as laptop]", heading="Machine")
    device: Device = changed(HardwareConfig, "device", "cpu", help="cuda: predict GPU memory too", heading="Machine")
    prune: Prune = changed(PruneConfig, "prune", "never")


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(ModelConfig, SourceConfig, FeatureConfig, EdgesConfig, OperatorConfig, SeedConfig):
    """The options of `spgnn verify`: the model's as in training, and the ranks that are compared with one."""

    heading = "Ranks"
    ranks: str = option("1,2,3,5", "numbers of ranks, all threads of this process", metavar="2,3,...")
    replication: int = changed(
        ExchangeConfig, "replication", 2, help="c of a run in 1.5D, on c*c ranks; 1: none", heading="Ranks"
    )
    seed: int = changed(SeedConfig, "seed", 0, help="seed of partitions, weights and dropout", heading="Ranks")
