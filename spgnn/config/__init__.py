"""Options as frozen dataclasses: one field is a TOML key, a command-line option and a keyword."""

from .commands import Distribution, MeasureConfig, PartitionConfig, PlanConfig, TrainConfig, Training, VerifyConfig
from .continued import (
    CHECKPOINT,
    EMBEDDING,
    MAY_CHANGE,
    NAMED_FILE,
    PARTS_FILE,
    RELATIONS_FILE,
    RUN_FILES,
    check_unchanged,
    continued,
    ended_summary,
    fixed_options,
    has_checkpoint,
    input_files,
    is_of_run,
    link_shares,
    split_file,
)
from .fields import (
    build,
    changed,
    layered,
    option,
    read_toml,
    sections,
    select,
    shared_values,
    to_toml,
    toml_values,
)
from .groups import MOST_BALANCE, MOST_HOPS, MOST_SEED, MOST_THREADS, SourceConfig, TableConfig
from .presets import PRESETS, preset_options

__all__ = [
    "MAY_CHANGE", "MOST_BALANCE", "MOST_HOPS", "MOST_SEED", "MOST_THREADS", "CHECKPOINT", "NAMED_FILE", "PARTS_FILE",
    "EMBEDDING", "PRESETS", "RELATIONS_FILE", "RUN_FILES", "Distribution", "MeasureConfig", "PartitionConfig", "PlanConfig", "VerifyConfig",
    "SourceConfig", "TableConfig", "TrainConfig", "Training", "build", "changed", "check_unchanged", "continued",
    "ended_summary", "fixed_options", "has_checkpoint", "input_files", "is_of_run", "layered",
    "option", "preset_options", "read_toml", "sections", "select", "shared_values", "to_toml", "link_shares", "split_file",
    "toml_values",
]  # fmt: skip
