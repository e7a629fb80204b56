"""MatchedFolder: a partition folder of which a model of another graph reads the columns that it was trained on.

Shapes: F columns of features.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ...config.names import On
from ...graph import ColumnMap, GraphColumns, taken
from .blocks import Halo, RowBlock
from .part_manifest import task_of_parts
from .store import PartitionFolder


class MatchedFolder(PartitionFolder):
    """A folder whose blocks and halos have the columns of a model, in its order; see ColumnMap. on: what labels are of."""

    def __init__(self, folder: PartitionFolder, columns: ColumnMap, on: On = "nodes"):
        super().__init__(folder.path)
        self.folder, self.columns, self.on = folder, columns, on

    @cached_property
    def manifest(self) -> dict:
        """The folder's manifest, with the widths that its blocks have here."""
        columns, manifest = self.columns, dict(self.folder.manifest)
        if columns.features is not None:
            manifest["n_features"] = len(columns.features)
        if columns.labels is not None and len(columns.labels) and self.on == "nodes":
            is_compared = columns.scored is not None
            manifest["n_classes"] = len(columns.labels) if is_compared else 1 + int(columns.labels.max())
        return manifest

    def block(self, rank: int) -> RowBlock:
        """Return what one rank owns, see PartitionFolder; columns that move are copied."""
        block, columns = self.folder.block(rank), self.columns
        edges, is_on_edges = block.edges, self.on == "edges"
        if edges is not None:
            y_E = columns.labels_of(edges.y_E) if is_on_edges else edges.y_E
            edges = replace(edges, attr_EF=taken(edges.attr_EF, columns.edge_features), y_E=y_E)
        X_nF, y_n = taken(block.X_nF, columns.features), block.y_n if is_on_edges else columns.labels_of(block.y_n)
        return replace(block, X_nF=X_nF, y_n=y_n, edges=edges)

    def halo(self, rank: int) -> Halo | None:
        """Return the halo of a part, or None if the folder has none."""
        halo = self.folder.halo(rank)
        return None if halo is None else replace(halo, X_gF=taken(halo.X_gF, self.columns.features))

    def check_values(self, block: RowBlock | Halo) -> None:
        """Raise PartitionError as the folder does, of what it has on disk."""
        stored = self.folder.halo(block.rank) if isinstance(block, Halo) else self.folder.block(block.rank)
        assert stored is not None
        self.folder.check_values(stored)


def columns_of_folder(folder: PartitionFolder, on: On = "nodes") -> GraphColumns:
    """Return the columns of the graph of a partition folder; on: what classes are of."""
    manifest, edge_attr, names = folder.manifest, folder.manifest["parts"][0].get("edge_attr"), folder.names
    width = 0 if edge_attr is None else edge_attr["shape"][1]
    n_classes, task = manifest["n_classes"], task_of_parts(manifest)
    if on == "edges":
        known = manifest.get("edge_meta", {})
        n_classes, task = known.get("edge_targets", 0), known.get("edge_task", "classes")
        names = replace(names, classes=names.edge_classes)
    return GraphColumns(
        manifest.get("graph") or folder.path.name, names, manifest["n_features"], width, n_classes, task
    )
