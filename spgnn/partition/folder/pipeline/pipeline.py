"""part_to_folder: an edge stream to the folder of parts that training loads, in O(N) memory and a given limit.

Stages, each done once and then kept for a run that takes up the work of a killed one:

    edges     check the stream, count the entries of each row; a slow one is copied as binary pairs
    owner     the method's passes: who owns which node
    buckets   every nonzero into the file of a range of rows of one part
    part P    sort the buckets of part P: its rows, what it reads of others (the halo of one hop), its metrics
    halo      further hops
    own, features, labels, split    one pass over each table, its rows to the parts
    graph     all rows in the order of the nodes: the digest of the graph, the rows of the halo
    manifest.json, and the new folder gets its name

Shapes: N nodes, E edges, k parts.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ....atomic import sync
from ....data.readers.make_graph import graph_name
from ....data.readers.npz import read_npy
from ....errors import FormatError, InputError, ResourceError, SpgnnError, UsageError, nearest
from ....graph import Graph
from ....graph.graph import EDGES
from ....graph.structure import index_dtype
from ...checks import check_k, check_owner
from ...metrics import metrics_of_counts
from ...stream.edge_passes import Passes
from ...stream.methods import BALANCE, check_options, choose_owners
from ...stream.sources import EdgeStream, edge_stream, is_read_fast
from ..store import check_free, part_name, sha256_of, write_manifest
from . import _pipeline, rows
from .deal import deal, deal_ids
from .halo import HaloRows, grow_halo
from .inputs import check_disk, identity, identity_of_option
from .memory_budget import Memory, memory_bytes_of
from .npy import NpyFile
from .part_tables import Sparse, check_rows, features_table, labels_table, split_table
from .work import Work

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Note = Callable[[str], None] | None


def part_to_folder(
    source, k: int, out: str | Path, method: str = "spring", seed: int = 0, balance: float = BALANCE, *,
    memory: str | int = "2GB", edges: str | None = None, hops: int = 1, features=None, labels=None, split=None,
    owner=None, n_nodes: int | None = None, format: str | None = None, relabel: bool = False,
    progress: Callable[[str, int, int], None] | None = None, note: Note = None, **options,
) -> dict:  # fmt: skip
    """Cut an edge stream into k parts and write their folder, as save_partition does for a graph in memory.

    Nothing of size E or N x F is ever in memory: what is, is O(N) and buffers within `memory`. A third column of a text
    file is not read: every edge weighs 1; a Graph with weights is refused. The same call after a kill goes on where that one was.

    Args:    source    see edge_stream; files, as an array or iterator cannot be recognised after a kill.
             method    a name that part_stream knows; or owner: (N,) integers, or an .npy of them.
             memory    limit of this process's resident memory: 2GB, 500MB, a number of bytes.
             edges     undirected (default), directed, reversed: see Graph.with_edges. Of a Graph what was chosen for it holds.
             hops      of the halo: 0 none; 1 the nodes that a part reads; h > 1 also the rows of those within h - 1 hops.
             features  .npy (N, F), a SciPy CSR .npz, or an array; labels, split: .npy or arrays. N is then that of their rows.
             n_nodes, format, relabel  see edge_stream; relabel numbers the distinct ids by rising value and writes ids.npy.
             progress  called with (pass, done, total); note: with one line of text now and then.
    Returns: what `spgnn partition` reports.
    Raises:  InputError, PartitionError, UsageError as part_stream; ResourceError where memory or disk are too small,
             which leaves nothing.
    """
    start = time.perf_counter()
    out = Path(os.path.realpath(out))  # what a link to a folder stands for is replaced, not the link
    k = check_k(k)
    check_options(method if owner is None else "spring", seed, balance, hops, options if owner is None else {})
    hops = int(hops)
    if edges is not None and edges not in EDGES:
        raise UsageError(f"edges = {edges!r} is not known{nearest(edges, EDGES)}")
    check_free(out)
    source, edges = _unweighted(source, edges) if isinstance(source, Graph) else (source, edges or "undirected")
    features = sp.csr_array(features) if sp.issparse(features) else features
    tables = {name: opened(value) for name, value, opened in
              (("features", features, features_table), ("labels", labels, labels_table), ("split", split, split_table)) if value is not None}  # fmt: skip
    n_given = _given_nodes(tables, n_nodes, relabel)
    stream = edge_stream(
        source, n_given, format, next(iter(tables.values())).where if tables and n_nodes is None else ""
    )
    limit = Memory.now(memory_bytes_of(memory), method, k, hops, relabel, not is_read_fast(source, format))
    if stream.n_nodes is not None:
        limit.buffers(stream.n_nodes)
    key = {
        "source": identity(source), "format": format, "n_nodes": n_given if n_given is None else int(n_given), "relabel": bool(relabel),
        "edges": edges, "k": k, "method": method, "seed": int(seed), "balance": float(balance), "hops": hops, "memory": limit.total_bytes, "owner": identity(owner),
        "options": {name: identity_of_option(value) for name, value in sorted(options.items())},
    } | {name: identity(value) for name, value in (("features", features), ("labels", labels), ("split", split))}  # fmt: skip
    run = _Run(
        stream,
        source,
        format,
        k,
        method,
        seed,
        balance,
        edges,
        hops,
        owner,
        relabel,
        tables,
        limit,
        progress or (lambda *_: None),
        options,
    )
    if note and stream.head and stream.head.n_columns == 3:
        note(f"the third column of {source} is not read: every edge weighs 1")
    with Work(out, key, note) as work:
        try:
            if work.new.exists():
                report = run.all_stages(work)
            else:
                report = work.record("manifest")
            work.publish()
        except OSError as error:
            if error.errno not in FULL:
                raise
            work.discard()
            raise ResourceError(
                f"{out}: {error.strerror}; what was written is removed again; free space or choose another --out"
            ) from None
        except SpgnnError:
            work.discard()
            raise
    return report | {"seconds": time.perf_counter() - start}


def _unweighted(graph: Graph, edges: str | None) -> tuple[Graph, str]:
    """Return a graph with its edges as they are used, and how; InputError where it has weights, which streams have not."""
    graph = graph.in_use() if edges is None else graph.with_edges(edges)
    if np.any(graph.A.data != 1):
        raise InputError(
            f"{graph.name}: has weights, and a stream of edges carries none; use part_graph and Partition.save, or make a Graph without weights"
        )
    return graph, graph.edges


def _given_nodes(tables: dict, n_nodes: int | None, relabel: bool) -> int | None:
    if not isinstance(relabel, (bool, np.bool_)):
        raise UsageError(f"relabel = {relabel!r}; expected True or False")
    if n_nodes is not None and relabel:
        raise UsageError(
            "relabel (--relabel) and n_nodes (--nodes) do not go together: relabelled nodes are those of the stream"
        )
    for table in tables.values():
        first = next(iter(tables.values()))
        check_rows(
            table,
            first.rows if n_nodes is None else n_nodes,
            f"{first.where} has as many" if n_nodes is None else "n_nodes (--nodes) says so",
        )
    return n_nodes if n_nodes is not None or relabel or not tables else next(iter(tables.values())).rows


class _Run:
    """The stages of one call, in order."""

    def __init__(
        self,
        stream: EdgeStream,
        source,
        format,
        k,
        method,
        seed,
        balance,
        edges,
        hops,
        owner,
        relabel,
        tables,
        limit,
        progress,
        options,
    ):
        self.stream, self.source, self.format, self.k, self.edges, self.hops = stream, source, format, k, edges, hops
        self.method, self.seed, self.balance, self.options, self.owner = (
            method,
            int(seed),
            float(balance),
            options,
            owner,
        )
        self.relabel, self.tables, self.limit, self.progress = relabel, tables, limit, progress
        self.path = Path(source) if isinstance(source, (str, Path)) else None
        self.copies = relabel or not is_read_fast(source, format)
        self.turned = "reversed" if isinstance(source, Graph) else edges  # a Graph's A_ij are streamed as j, i

    def all_stages(self, work: Work) -> dict:
        """Do what is not done yet; return what is reported."""
        read = work.stage("edges", lambda: rows.read_edges(
            work, self.stream, self.turned, relabel=self.relabel, copies=self.copies, progress=self.progress))  # fmt: skip
        self.n_nodes = n_nodes = read["n_nodes"]
        if n_nodes == 0 and self.path:
            raise FormatError(f"{self.path}: holds no edge; expected two ids a line or record")
        self.limit.buffers(n_nodes)
        for table in self.tables.values():
            check_rows(table, n_nodes, "the nodes of the stream")
            self.limit.check_row(table, n_nodes)
        work.stage("owner", lambda: self._choose(work, read))
        self.owner_N = np.load(work.new / "owner.npy")
        spilled = work.stage("buckets", lambda: self._spill(work, read))
        work.drop("counts.npy", rows.COPY)
        spilled["index_dtype"] = rows.spill_index_dtype(n_nodes, spilled)
        parts, sent_PP = self._sort_parts(work, spilled)
        work.drop("ranked.npy", "bucket-*")
        self._deal(work, spilled, parts)
        digest = work.stage("graph", lambda: self._digest(work, spilled, sum(part["nnz"] for part in parts)))["digest"]
        return work.stage("manifest", lambda: self._manifest(work, read, parts, sent_PP, digest))

    def _edges(self, work: Work, read: dict) -> Passes:
        """The passes over the stream, or its copy, whose edges must be those of the first."""
        source = work.folder / rows.COPY if self.copies else self.source
        stream = edge_stream(source, self.n_nodes, None if self.copies else self.format)
        stream = EdgeStream(self.stream.name, stream.chunks, self.n_nodes, stream.n_edges, stream.most_edges)
        return Passes(stream, False, self.progress, read["fingerprint"] and tuple(read["fingerprint"]))

    def _choose(self, work: Work, read: dict) -> dict:
        if self.owner is None:
            owner_N, _ = choose_owners(
                self._edges(work, read), self.k, self.method, self.seed, self.balance, self.options
            )
        else:
            is_file = isinstance(self.owner, (str, Path))
            owner_N = check_owner(
                read_npy(Path(self.owner)) if is_file else self.owner,
                self.n_nodes,
                self.k,
                str(self.owner) if is_file else "owner",
            )
        file = NpyFile(work.new / "owner.npy", np.int32)
        file.append(owner_N)
        file.finish()
        return {}

    def _spill(self, work: Work, read: dict) -> dict:
        check_disk(work.folder, read["entries"], self.n_nodes, self.tables, 0)
        limit = self.limit
        return rows.spill_edges(
            work,
            self._edges(work, read),
            self.owner_N,
            self.k,
            self.turned,
            limit.bucket_entries(self.n_nodes),
            limit.spill_entries(self.n_nodes),
        )

    def _sort_parts(self, work: Work, spilled: dict) -> tuple[list[dict], np.ndarray]:
        reads, parts = None, []
        sent_PP = np.zeros((self.k, self.k), np.int32)
        most = self.limit.bucket_entries(self.n_nodes)
        for p in range(self.k):
            if work.record(f"part-{p:05d}") is None:
                reads = reads or _pipeline.Reads(self.owner_N)
            part = work.stage(
                f"part-{p:05d}", lambda: rows.sort_part(work, spilled, p, self.owner_N, reads, self.k, most)
            )
            sent_PP[:, p] = part.pop("sent")  # as numbers of Python they are several times as large
            parts.append(part)
            rows.drop_buckets(work, spilled, p)
            self.progress("sort rows", p + 1, self.k)
        return parts, sent_PP

    def _deal(self, work: Work, spilled: dict, parts: list[dict]) -> None:
        work.stage("own", lambda: deal_ids(work, self.owner_N, self.k))
        if self.hops > 1:
            rows_of = lambda: rows.GlobalRows(work.new, self.owner_N, self.k, spilled["index_dtype"])
            block = self._block_entries()
            grown = work.stage(
                "halo", lambda: grow_halo(work, rows_of(), self.owner_N, self.k, self.hops, block, self.progress)
            )
            work.drop("near-*", "hop-*")
            halo = sum(grown["sizes"])
        else:
            halo = sum(part["halo"] for part in parts) if self.hops else 0
        if any(work.record(name) is None for name in self.tables):
            check_disk(work.folder, 0, self.n_nodes, self.tables, halo)
        for name, table in self.tables.items():
            with_halo = name == "features" and self.hops > 0
            block_bytes = self.limit.row_bytes(self.n_nodes)
            work.stage(
                name, lambda: deal(work, table, name, self.owner_N, self.k, block_bytes, with_halo, self.progress)
            )

    def _block_entries(self) -> int:
        return self.limit.bucket_entries(self.n_nodes) // 8  # 32 bytes an entry

    def _digest(self, work: Work, spilled: dict, nnz: int) -> dict:
        """Graph.digest of the graph that the parts make, and the rows of the halo where it has any."""
        n_nodes, dtype = self.n_nodes, spilled["index_dtype"]
        sha = hashlib.sha256(np.int64([n_nodes, nnz]).tobytes())
        all_rows = rows.GlobalRows(work.new, self.owner_N, self.k, dtype)
        sha.update(np.int64(0).tobytes())
        end = 0
        for start in range(0, n_nodes, 1 << 20):
            ends = end + np.cumsum(all_rows.lengths_N[start : start + (1 << 20)], dtype=np.int64)
            end = int(ends[-1])
            sha.update(ends.tobytes())
        # A halo may have more nonzeros than any part, up to all.
        halo = (
            HaloRows(work, self.k, self.hops, np.dtype(index_dtype(max(n_nodes, nnz))).str) if self.hops > 1 else None
        )
        for start, lengths, columns in all_rows.blocks(self._block_entries()):
            sha.update(columns.astype(np.int64).data)
            if halo is not None:
                halo.add(start, lengths, columns)
            self.progress("digest", start + len(lengths), n_nodes)
        ones = np.ones(1 << 18)
        for start in range(0, nnz, len(ones)):
            sha.update(ones[: nnz - start].data)
        if halo is not None:
            halo.finish()
        return {"digest": sha.hexdigest()}

    def _manifest(self, work: Work, read: dict, parts: list[dict], sent_PP: np.ndarray, digest: str) -> dict:
        sizes_k = np.bincount(self.owner_N, minlength=self.k)
        nnz_k = np.array([part["nnz"] for part in parts])
        found = metrics_of_counts(
            sent_PP, sum(part["cut"] for part in parts), (nnz_k + sizes_k).astype(np.float64), sizes_k
        )
        X = self.tables.get("features")
        method = self.method if self.owner is None else "given"
        manifest = {
            "n_nodes": self.n_nodes,
            "nnz": int(nnz_k.sum()),
            "k": self.k,
            "method": method,
            "seed": self.seed,
            "balance": self.balance,
            "graph": graph_name(self.path)
            if self.path
            else self.source.name
            if isinstance(self.source, Graph)
            else "stream",
            "edges": self.edges,
            "graph_digest": digest,
            "metrics": found,
            "owner_sha256": sha256_of(self.owner_N),
            "n_features": 0 if X is None else X.width if isinstance(X, Sparse) else X.tail[0],
            "hops": self.hops,
            "parts": [self._files(work.new / part_name(p)) for p in range(self.k)],
        }
        for folder in (*(work.new / part_name(p) for p in range(self.k)), work.new):
            sync(folder)
        write_manifest(work.new, manifest)
        head = {"k": self.k, "n": self.n_nodes, "nnz": manifest["nnz"], "edges": read["n_edges"], "method": method}
        return head | found | {"hops": self.hops}

    def _files(self, folder: Path) -> dict:
        """Return dtype and shape of the arrays of a part; its halo goes where hops = 0."""
        if not self.hops:
            (folder / "halo.npy").unlink(missing_ok=True)
        sparse = [f"features_{part}" for part in ("indptr", "indices", "data")]
        names = ["own", "indptr", "indices", "weights", *sparse, "features", "labels", "split", "halo", "halo_hops"]
        names += [f"halo_{name}" for name in ("indptr", "indices", "weights", *sparse, "features")]
        found = {}
        for name in names:
            if (path := folder / f"{name}.npy").exists():
                array = np.lib.format.open_memmap(path, mode="r")
                found[name] = {"dtype": array.dtype.str, "shape": array.shape}
        return found
