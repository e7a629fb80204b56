"""part_to_folder: from an edge stream to the folder of parts that training loads, in O(N) memory within a limit.

Stages; after a kill the next run skips those that are done:

    edges     check the stream, count the entries of each row; a slow one is copied as binary pairs
    owner     the passes of the method: who owns which node
    buckets   every nonzero into the file of a range of rows of one part
    part P    sort the buckets of part P: its rows, the nodes that it reads from others (the halo of one hop), its metrics
    halo      further hops
    own, features, labels, split    one pass over each table, distributing its rows
    graph     all rows in the order of the nodes: the digest of the graph, sums of rows and columns, the rows of the halo
    manifest  manifest.json; then the new folder gets its name

Shapes: N nodes, E edges, k parts.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np

from ....atomic import sync
from ....data.readers.lines import read_owner
from ....data.readers.make_graph import graph_name
from ....errors import FormatError, ResourceError, SpgnnError
from ....graph import Graph
from ....graph.digest import RowsDigest, edges_digest, fingerprint_of
from ....graph.structure import index_dtype
from ...checks import check_owner
from ...metrics import metrics_of_counts
from ...stream.edge_passes import StreamPasses
from ...stream.methods import BALANCE, choose_owners
from ...stream.sources import EdgeStream, edge_stream
from ..part_manifest import write_manifest
from ..store import check_free, described, part_name, sha256_of
from . import _pipeline, rows
from .edge_rows import ENTRY_BYTES, drop_attributed, sort_attributed, spill_attributed
from .halo import HaloRows, SumsOfNodes, count_train, grow_halo
from .memory_budget import check_disk
from .part_tables import Dense, Sparse, check_rows, distribute_table, write_own_ids
from .pipeline_options import PipelineOptions
from .work import WorkFolder, write_npy

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def part_to_folder(
    source, k: int, out: str | Path, method: str = "spring", seed: int = 0, balance: float = BALANCE, **options
) -> dict:
    """Cut an edge stream into k parts and write their folder, as save_partition does for a graph in memory.

    Memory is O(N) and buffers within `memory`: never all edges or features; with edge_features those of a part. A third column of a text file is ignored,
    every edge weighs 1; a Graph with weights is refused. After a kill the same call continues the interrupted run.

    Args:    source    see edge_stream; give files, as an array or iterator cannot be recognised after a kill.
             method    a name that part_stream knows, or the option owner.
             options   memory, edges, hops, features, labels, split, owner, n_nodes, format, relabel, progress, note: see
                       PipelineOptions; others are options of the method.
    Returns: what `spgnn partition` reports.
    Raises:  InputError, PartitionError, UsageError as part_stream; ResourceError if memory or disk are too small; nothing
             is left then.
    """
    start = time.perf_counter()
    given = PipelineOptions.of(source, k, method, seed, balance, **options)
    out = Path(os.path.realpath(out))  # of a link to a folder, the folder is replaced, not the link
    check_free(out)
    run = _Run(given)
    if given.note and run.stream.head and run.stream.head.has_weights:
        given.note(f"the third column of {source} is ignored: every edge weighs 1")
    with WorkFolder(out, given.key(), given.note) as work:
        try:
            report = None if work.new.exists() else work.record("manifest")
            report = run.all_stages(work) if report is None else report
            work.publish()
        except OSError as error:
            if error.errno not in FULL:
                raise
            work.discard()
            raise ResourceError(
                f"{out}: {error.strerror}; the files written so far were removed; free space or choose another --out"
            ) from None
        except SpgnnError:
            work.discard()
            raise
    return report | {"seconds": time.perf_counter() - start}


class _Run:
    """The stages of one call, in order."""

    def __init__(self, options: PipelineOptions):
        self.options, self.progress = options, options.progress or (lambda *_: None)
        self.k, self.tables, self.attributes = options.k, options.tables, options.attributes
        self.stream = options.stream()
        self.budget = options.budget()
        if self.stream.n_nodes is not None:
            self.budget.buffers(self.stream.n_nodes)

    def all_stages(self, work: WorkFolder) -> dict:
        """Run the stages that are not done; return the report."""
        options = self.options
        read_edges = lambda: rows.read_edges(
            work, self.stream, options.stream_edges, relabel=options.relabel, copies=options.is_copied, progress=self.progress
        )  # fmt: skip
        read = work.stage("edges", read_edges)
        self.n_nodes = n_nodes = read["n_nodes"]
        if n_nodes == 0 and options.path:
            raise FormatError(f"{options.path}: holds no edge; expected two ids per line or record")
        self.budget.buffers(n_nodes)
        if self.attributes is not None and self.attributes.rows != read["n_edges"]:
            raise FormatError(
                f"{self.attributes.where}: {self.attributes.rows} rows; expected {read['n_edges']}, one for each edge of "
                f"{self.stream.name}"
            )
        for table in self.tables.values():
            check_rows(table, n_nodes, "the nodes of the stream")
            self.budget.check_row(table, n_nodes)
        work.stage("owner", lambda: self._choose(work, read))
        self.owner_N = np.load(work.new / "owner.npy")
        spilled = work.stage("buckets", lambda: self._spill(work, read))
        work.drop("counts.npy", rows.COPY)
        spilled["index_dtype"] = rows.spill_index_dtype(n_nodes, spilled)
        parts, sent_PP = self._sort_parts(work, spilled)
        work.drop("ranked.npy", "bucket-*")
        self._distribute(work, spilled, parts)
        digest = work.stage("graph", lambda: self._digest(work, spilled, sum(part["nnz"] for part in parts)))["digest"]
        return work.stage("manifest", lambda: self._manifest(work, read, parts, sent_PP, digest))

    def _edges(self, work: WorkFolder, read: dict) -> StreamPasses:
        """Return passes over the stream, or its copy, which refuse other edges than the first pass had."""
        options = self.options
        source, format = (work.folder / rows.COPY, None) if options.is_copied else (options.source, options.format)
        stream = edge_stream(source, self.n_nodes, format)
        stream = EdgeStream(self.stream.name, stream.chunks, self.n_nodes, stream.n_edges, stream.most_edges)
        return StreamPasses(stream, False, self.progress, read["fingerprint"] and tuple(read["fingerprint"]))

    def _choose(self, work: WorkFolder, read: dict) -> dict:
        options = self.options
        if options.owner is None:
            passes = self._edges(work, read)
            owner_N, _ = choose_owners(
                passes, self.k, options.method, options.seed, options.balance, options.method_options
            )
        else:
            is_file = isinstance(options.owner, (str, Path))
            owner_N = read_owner(Path(options.owner)) if is_file else options.owner
            owner_N = check_owner(owner_N, self.n_nodes, self.k, str(options.owner) if is_file else "owner")
        write_npy(work.new / "owner.npy", owner_N)
        return {}

    def _spill(self, work: WorkFolder, read: dict) -> dict:
        entries, attributes = read["entries"], self.attributes
        if attributes is not None:  # spilled, and written again, with their edges
            entries *= (ENTRY_BYTES + 2 * attributes.row_bytes) // 8 + 1
        check_disk(work.folder, entries, self.n_nodes, self.tables, 0)
        if attributes is not None:
            most = self.budget.row_bytes(self.n_nodes)
            edges = self.options.stream_edges
            return spill_attributed(work, self._edges(work, read), self.owner_N, self.k, edges, attributes, most)
        sizes = self.budget.bucket_entries(self.n_nodes), self.budget.spill_entries(self.n_nodes)
        return rows.spill_edges(work, self._edges(work, read), self.owner_N, self.k, self.options.stream_edges, *sizes)

    def _sort_parts(self, work: WorkFolder, spilled: dict) -> tuple[list[dict], np.ndarray]:
        reads, parts = None, []
        sent_PP = np.zeros((self.k, self.k), np.int32)
        most = self.budget.bucket_entries(self.n_nodes)
        for p in range(self.k):
            if work.record(f"part-{p:05d}") is None:
                reads = reads or _pipeline.Reads(self.owner_N)
            part = work.stage(f"part-{p:05d}", lambda: self._sort_part(work, spilled, p, reads, most))
            sent_PP[:, p] = part.pop("sent")  # Python integers would take several times the memory
            parts.append(part)
            rows.drop_buckets(work, spilled, p)
            drop_attributed(work, p)
            self.progress("sort rows", p + 1, self.k)
        return parts, sent_PP

    def _sort_part(self, work: WorkFolder, spilled: dict, p: int, reads: _pipeline.Reads, most: int) -> dict:
        if self.attributes is None:
            return rows.sort_part(work, spilled, p, self.owner_N, reads, self.k, most)
        buffers = self.budget.buffers(self.n_nodes)
        return sort_attributed(work, spilled, p, self.owner_N, reads, self.k, self.attributes, buffers)

    def _distribute(self, work: WorkFolder, spilled: dict, parts: list[dict]) -> None:
        work.stage("own", lambda: write_own_ids(work, self.owner_N, self.k))
        if self.options.hops > 1:
            rows_of = lambda: rows.GlobalRows(work.new, self.owner_N, self.k, spilled["index_dtype"])
            block = self._block_entries()
            grown = work.stage(
                "halo",
                lambda: grow_halo(work, rows_of(), self.owner_N, self.k, self.options.hops, block, self.progress),
            )
            work.drop("near-*", "hop-*")
            halo = sum(grown["sizes"])
        else:
            halo = sum(part["halo"] for part in parts) if self.options.hops else 0
        if any(work.record(name) is None for name in self.tables):
            check_disk(work.folder, 0, self.n_nodes, self.tables, halo)
        for name, table in self.tables.items():
            with_halo = name == "features" and self.options.hops > 0
            block_bytes = self.budget.row_bytes(self.n_nodes)
            work.stage(
                name,
                lambda: distribute_table(
                    work, table, name, self.owner_N, self.k, block_bytes, with_halo, self.progress
                ),
            )

    def _block_entries(self) -> int:
        return self.budget.bucket_entries(self.n_nodes) // 8  # 32 bytes per entry

    def _digest(self, work: WorkFolder, spilled: dict, nnz: int) -> dict:
        """Return Graph.digest of the graph that the parts make up; write all sums, and the rows of the halo if hops > 1."""
        n_nodes, dtype = self.n_nodes, spilled["index_dtype"]
        digest, all_rows = RowsDigest(), rows.GlobalRows(work.new, self.owner_N, self.k, dtype)
        # A halo may have more nonzeros than any part, up to all.
        halo = None
        if self.options.hops > 1:
            halo = HaloRows(work, self.k, self.options.hops, np.dtype(index_dtype(max(n_nodes, nnz))).str)
        # A Graph's word is not relied on, as a user may have made it.
        is_multi = self.attributes is not None
        is_symmetric = (
            self.options.edges == "undirected" and not isinstance(self.options.source, Graph) and not is_multi
        )
        sums = SumsOfNodes(all_rows.lengths_N, is_symmetric, is_multi)
        for start, lengths, columns in all_rows.blocks(self._block_entries()):
            digest.add_parts(lengths, columns, np.ones(len(columns)))
            sums.add(start, lengths, columns)
            if halo is not None:
                halo.add(start, lengths, columns)
            self.progress("digest", start + len(lengths), n_nodes)
        if halo is not None:
            halo.finish()
        sums.write(work, self.k, self.options.hops > 0)
        return {"digest": digest.hexdigest()}

    def _manifest(self, work: WorkFolder, read: dict, parts: list[dict], sent_PP: np.ndarray, digest: str) -> dict:
        sizes_k = np.bincount(self.owner_N, minlength=self.k)
        nnz_k = np.array([part["nnz"] for part in parts])
        found = metrics_of_counts(
            sent_PP, sum(part["cut"] for part in parts), (nnz_k + sizes_k).astype(np.float64), sizes_k
        )
        X = self.tables.get("features")
        options = self.options
        method = options.method if options.owner is None else "given"
        name = graph_name(options.path) if options.path else getattr(options.source, "name", "stream")
        dense = {name: table for name, table in self.tables.items() if isinstance(table, Dense)}
        labels, split = dense.get("labels"), dense.get("split")
        counted = [count_train(work.new / part_name(p), labels, split) for p in range(self.k)]
        nnz, tables = int(nnz_k.sum()), [work.record(name) or {} for name in ("features", "labels", "split")]
        fingerprint = fingerprint_of(
            nnz, digest, self._edges_digest(work), [table.get("digest", "") for table in tables]
        )
        manifest = {
            "n_nodes": self.n_nodes, "nnz": nnz, "k": self.k, "method": method, "seed": options.seed,
            "balance": options.balance, "graph": name, "edges": options.edges, "graph_digest": digest,
            "fingerprint": fingerprint, "metrics": found, "owner_sha256": sha256_of(self.owner_N),
            "n_features": 0 if X is None else X.width if isinstance(X, Sparse) else X.tail[0],
            "n_classes": max((classes for classes, _ in counted), default=0), **self._edge_meta(read),
            "hops": self.options.hops, "train": [train for _, train in counted],
            "parts": [self._files(work.new / part_name(p)) for p in range(self.k)],
        }  # fmt: skip
        for folder in (*(work.new / part_name(p) for p in range(self.k)), work.new):
            sync(folder)
        write_manifest(work.new, manifest)
        head = {"k": self.k, "n": self.n_nodes, "nnz": manifest["nnz"], "edges": read["n_edges"], "method": method}
        return head | found | {"hops": self.options.hops}

    def _edges_digest(self, work: WorkFolder) -> int | None:
        """Return edges_digest of the attributes of all parts."""
        if self.attributes is None:
            return None
        of_part = lambda p, name: np.load(work.new / part_name(p) / f"{name}.npy", mmap_mode="r")
        return sum(edges_digest(of_part(p, "edge_ids"), of_part(p, "edge_attr")) for p in range(self.k)) % 2**64

    def _edge_meta(self, read: dict) -> dict:
        if self.attributes is None:
            return {}
        return {"edge_meta": {"edges_listed": read["n_edges"], "antisymmetric": self.attributes.flipped}}

    def _files(self, folder: Path) -> dict:
        """Return what describes the arrays of a part; without hops, remove its halo."""
        if not self.options.hops:
            (folder / "halo.npy").unlink(missing_ok=True)
        return described(folder)
