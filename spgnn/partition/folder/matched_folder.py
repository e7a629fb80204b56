"""MatchedFolder: a partition folder of which a model of another graph reads the columns that it was trained on.

Shapes: F columns of features.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ...graph import ColumnMap, GraphColumns, taken
from .blocks import Halo, RowBlock
from .part_manifest import task_of_parts
from .store import PartitionFolder


class MatchedFolder(PartitionFolder):
    """A folder whose blocks and halos have the columns of a model, in its order; see ColumnMap."""

    def __init__(self, folder: PartitionFolder, columns: ColumnMap):
        super().__init__(folder.path)
        self.folder, self.columns = folder, columns

    @cached_property
    def manifest(self) -> dict:
        """The folder's manifest, with the widths that its blocks have here."""
        columns, manifest = self.columns, dict(self.folder.manifest)
        if columns.features is not None:
            manifest["n_features"] = len(columns.features)
        if columns.labels is not None and len(columns.labels):
            is_compared = columns.scored is not None
            manifest["n_classes"] = len(columns.labels) if is_compared else 1 + int(columns.labels.max())
        return manifest

    def block(self, rank: int) -> RowBlock:
        """Return what one rank owns, see PartitionFolder; columns that move are copied."""
        block, columns = self.folder.block(rank), self.columns
        edges = block.edges
        if edges is not None:
            edges = replace(edges, attr_EF=taken(edges.attr_EF, columns.edge_features))
        X_nF, y_n = taken(block.X_nF, columns.features), columns.labels_of(block.y_n)
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


def columns_of_folder(folder: PartitionFolder) -> GraphColumns:
    """Return the columns of the graph of a partition folder."""
    manifest, edge_attr = folder.manifest, folder.manifest["parts"][0].get("edge_attr")
    width = 0 if edge_attr is None else edge_attr["shape"][1]
    sizes = manifest["n_features"], width, manifest["n_classes"]
    return GraphColumns(manifest.get("graph") or folder.path.name, folder.names, *sizes, task_of_parts(manifest))
