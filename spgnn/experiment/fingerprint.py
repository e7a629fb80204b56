"""Whether a run is continued, and predicted, on the graph that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..dist.consistency import digest
from ..distgraph import DistGraph, Parts
from ..errors import CheckpointError
from .checkpoint import list_checkpoints, read_manifest

CONTINUE = "give the graph that the run was trained on"
PREDICT = "predict this one by --graph GRAPH --out FILE, or train again"


def graph_facts(graph: DistGraph | Parts) -> dict[str, Any]:
    """Return sizes and fingerprints of a graph, the same for any ranks and parts: the JSON object `graph` of a checkpoint.

    edges        digest of the structure, weights and attributes; fingerprint: of features, labels and splits; neither of
                 a part that Parts.open returns.
    parts        of Parts alone: k and a digest of the owners.
    """
    known = graph.source.facts if isinstance(graph, Parts) else graph
    facts = {"nodes": known.n_nodes, "features": known.n_features, "classes": known.n_classes}
    if known.fingerprint:
        nonzeros, edges, fingerprint = known.fingerprint.split("-")
        facts |= {"nonzeros": int(nonzeros), "fingerprint": fingerprint, "edges": edges}
    if isinstance(graph, Parts):
        facts["parts"] = f"{graph.k}-{digest(graph.source.partition.owner_N)}"
    return facts


def made_on(checkpoints: Path) -> tuple[Path, dict[str, Any]]:
    """Return the newest checkpoint that has graph_facts, and these; {} without any, as in a folder of save_run."""
    found = ((path, read_manifest(path).get("graph")) for path in reversed(list_checkpoints(checkpoints)))
    return next(((path, facts) for path, facts in found if facts), (checkpoints, {}))


def check_graph(path: Path, before: dict[str, Any], here: dict[str, Any], fix: str = CONTINUE) -> None:
    """Raise CheckpointError unless a checkpoint was made on this graph.

    Args: before, here  graph_facts of the checkpoint, {} where it has none, and of this graph; fix: what to do then.
    """
    names = [name for name in here if before and name != "parts" and before.get(name) != here[name]]
    if names:
        what = {"fingerprint": "fingerprint of features, labels and split"} if names == ["fingerprint"] else {}
        differ = ", ".join(f"{what.get(name, name)} {before.get(name)}, here {here[name]}" for name in names)
        raise CheckpointError(f"{path} was made on another graph ({differ}); {fix}")


def check_parts(path: Path, before: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise CheckpointError where the models of a checkpoint were averaged over other parts than here."""
    if "parts" in before and "parts" in here and before["parts"] != here["parts"]:
        raise CheckpointError(
            f"{path} was trained on other parts (k and owners {before['parts']}, here {here['parts']}), on which averaging "
            "depends; give the same --partition"
        )
