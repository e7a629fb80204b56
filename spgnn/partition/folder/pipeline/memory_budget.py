"""How much memory the pipeline may use, and how it is divided; how much disk it needs.

Shapes: N nodes, k parts.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ....errors import ResourceError, UsageError
from ....machine import rss_bytes
from ...stream.spring import HELD
from .part_tables import Dense, Sparse

UNITS = {"": 1, "B": 1} | {f"{x}B": 10 ** (3 * i) for i, x in enumerate("KMGT", start=1)}
UNITS |= {f"{x}IB": 2 ** (10 * i) for i, x in enumerate("KMGT", start=1)}
# Bytes per node of a method, its checks included; vertex cuts need 8 more for each 64 parts.
METHOD_BYTES = {"spring": 34, "spring+": 42, "dbh": 26, "greedy": 26, "hdrf": 26, "2psl": 36}
OTHER_BYTES, STAGE_BYTES, HOPS_BYTES, RELABEL_BYTES = 42, 26, 36, 66
PAIR_BYTES = 4  # per entry of the table of rows that parts send each other
LEAST_BUFFERS, TEXT_BUFFERS = 24 << 20, 88 << 20
MOST_ENTRIES, MOST_ROW_BYTES = 1 << 24, 64 << 20  # more memory is not faster


def memory_bytes_of(text: str | int, name: str = "memory =") -> int:
    """Return the bytes of 2GB, 500MB, 1.5 GiB or a number of bytes; name: of the option, in an error."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]*)\s*", str(text).lower())
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise UsageError(f"{name} {text!r}; expected a size such as 2GB, 500MB or 1.5GiB")
    return int(float(match[1]) * unit)


def node_bytes(method: str, k: int, hops: int, relabel: bool) -> int:
    """Return the bytes per node that the largest stage needs."""
    words = -(-k // 64)
    of_method = METHOD_BYTES.get(method, OTHER_BYTES) + 8 * (words - 1) * (method not in ("spring", "spring+"))
    return max(of_method, STAGE_BYTES, HOPS_BYTES * (hops > 1), RELABEL_BYTES * relabel)


@dataclass(frozen=True, slots=True)
class Memory:
    """Shares of the memory of a run: the interpreter's, bytes per node, and buffers of the rest.

    Args: total_bytes   the limit.
          base_bytes    resident before anything was read.
          node_bytes    per node; least_buffers: needed whatever N is.
          pair_bytes    of the table of rows that pairs of parts exchange.
    """

    total_bytes: int
    node_bytes: int
    least_buffers: int = LEAST_BUFFERS
    base_bytes: int = 0
    pair_bytes: int = 0

    @classmethod
    def now(cls, total_bytes: int, method: str, k: int, hops: int, relabel: bool, is_parsed: bool) -> Memory:
        """Return the shares, with the memory that this process holds now."""
        held = HELD if method == "spring+" else 0
        return cls(
            total_bytes,
            node_bytes(method, k, hops, relabel),
            max(TEXT_BUFFERS if is_parsed else LEAST_BUFFERS, held),
            rss_bytes(),
            PAIR_BYTES * k * k,
        )

    def buffers(self, n_nodes: int) -> int:
        """Return the bytes left for buffers; ResourceError with the arithmetic if they are too few."""
        left = self.total_bytes - self.base_bytes - self.node_bytes * n_nodes - self.pair_bytes
        if left < self.least_buffers:
            need = self.total_bytes - left + self.least_buffers
            pairs = f"the pairs of parts {self.pair_bytes / 1e6:,.0f} MB, " if self.pair_bytes >= 10**6 else ""
            raise ResourceError(
                f"memory of {self.total_bytes / 1e6:,.0f} MB is too little: the interpreter has {self.base_bytes / 1e6:,.0f} MB, "
                f"{n_nodes:,} nodes need {self.node_bytes} bytes each, {self.node_bytes * n_nodes / 1e6:,.0f} MB, {pairs}and buffers "
                f"{self.least_buffers / 1e6:,.0f} MB; give it {-(-need // 10**6):,} MB or more"
            )
        return left

    def spill_entries(self, n_nodes: int) -> int:
        """Return how many entries of 8 bytes are sorted into buckets at a time; they are held twice."""
        return min(self.buffers(n_nodes) // 2 // 16, MOST_ENTRIES // 4)

    def bucket_entries(self, n_nodes: int) -> int:
        """Return how many entries of 4 bytes a bucket of rows may have."""
        return min(self.buffers(n_nodes) // 2 // 4, MOST_ENTRIES)

    def row_bytes(self, n_nodes: int) -> int:
        """Return the bytes of rows of features that are read at a time; they are held up to three times."""
        return min(self.buffers(n_nodes) // 4, MOST_ROW_BYTES // 2)

    def check_row(self, table: Dense | Sparse, n_nodes: int) -> None:
        """Raise ResourceError if a single row of a table does not fit into the buffers."""
        most = self.buffers(n_nodes) // 4
        if table.row_bytes > most:
            need = self.total_bytes + 4 * (table.row_bytes - most)
            raise ResourceError(
                f"{table.where}: a row has {table.row_bytes / 1e6:,.0f} MB and is held up to three times; memory of {self.total_bytes / 1e6:,.0f} MB "
                f"leaves {most / 1e6:,.0f} MB for each; give it {-(-need // 10**6):,} MB or more"
            )


def check_disk(folder: Path, entries: int, n_nodes: int, tables: dict[str, Dense | Sparse], halo: int) -> None:
    """Raise ResourceError, with the arithmetic, if the disk has too little space for the rest of the run.

    Args: entries  nonzeros that are spilled and sorted, 8 bytes each, those of a part twice; halo: copied rows of features.
    """
    table_bytes = 0
    for name, table in tables.items():
        row = table.nnz / max(table.rows, 1) * 12 + 4 if isinstance(table, Sparse) else table.row_bytes
        table_bytes += int(row * (n_nodes + (halo if name == "features" else 0)))
    need = 8 * entries + 16 * n_nodes * (entries > 0) + table_bytes
    free = shutil.disk_usage(folder).free
    if need > free:
        spilled = f"{entries:,} nonzeros 8 bytes each, {8 * entries / 1e6:,.0f} MB, " if entries else ""
        raise ResourceError(
            f"{folder.parent}: {free / 1e6:,.0f} MB are free; {spilled}the rows of nodes and copies {table_bytes / 1e6:,.0f} MB, "
            f"in all {need / 1e6:,.0f} MB are needed"
        )
