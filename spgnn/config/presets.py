"""Presets: the options that papers state for their trainings, by name; options that are given override them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class Preset:
    """Options of a training, and the place of the paper that states them."""

    source: str
    options: Mapping[str, Any]


PLANETOID = {"layers": 2, "dropout": 0.5, "weight_decay": 5e-4, "lr": 0.01, "feature_norm": "row"}
GAT = PLANETOID | {
    "model": "gat", "hidden": 64, "heads": 8, "act": "elu", "dropout": 0.6, "attention_dropout": 0.6, "lr": 0.005,
    "epochs": 1000, "patience": 100,  # the paper bounds epochs by patience alone
}  # fmt: skip
CATGNN = {"layers": 2, "hidden": 256, "lr": 0.01, "epochs": 100, "mode": "average", "method": "spring"}
PRESETS = {
    "planetoid-gcn": Preset(
        "Kipf & Welling 2017, section 5.2",  # no bias: eq. (9)
        PLANETOID | {"hidden": 16, "decay_layers": "first", "bias": False, "epochs": 200},
    ),
    "planetoid-gat": Preset("Velickovic et al. 2018, section 3.3: Cora, Citeseer", GAT),
    "pubmed-gat": Preset(
        "Velickovic et al. 2018, section 3.3: Pubmed", GAT | {"heads_out": 8, "weight_decay": 1e-3, "lr": 0.01}
    ),
    "planetoid-appnp": Preset(
        "Gasteiger et al. 2019, section 5, without dropout of A",
        PLANETOID
        | {"model": "appnp", "hidden": 64, "powers": 10, "teleport": 0.1, "weight_decay": 5e-3, "decay_layers": "first"}
        | {"epochs": 10_000, "patience": 100},
    ),
    "graphsaint": Preset(
        "Zeng et al. 2021, eq. (1) and section 7.5",
        {"model": "sage", "combine": "cat", "layers": 2, "hidden": 512, "sampler": "frontier", "budget": 8000},
    ),
    "entropy-aware": Preset(
        "Deshmukh et al. 2023, sections III, IV; for --personal",
        {"model": "sage", "layers": 2, "lr": 0.001, "epochs": 100, "mode": "average", "method": "entropy"}
        | {"sampler": "neighbour", "fanout": "25,25", "class_balance": 0.25},
    ),
    "catgnn-gcn": Preset("CATGNN, section 5.1", CATGNN),
    "catgnn-gat": Preset("CATGNN, section 5.1", CATGNN | {"model": "gat", "heads": 4, "heads_out": 4}),
    "catgnn-sage": Preset(
        "CATGNN, section 5.1", CATGNN | {"model": "sage", "sampler": "neighbour", "fanout": "10,25", "batch": 512}
    ),
    "icpp24": Preset(
        "Mukhodopadhyay et al. 2024, section 6",
        {"layers": 3, "hidden": 16, "epochs": 100, "method": "volume", "scheme": "columns"},
    ),
}


def preset_options(name: str) -> dict[str, Any]:
    """Return the options of a preset. Raises: UsageError for a name that is not known, with the nearest."""
    if name not in PRESETS:
        raise UsageError(f"--preset {name!r} is not known{nearest(name, PRESETS)}")
    return dict(PRESETS[name].options)
