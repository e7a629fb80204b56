"""PipelineOptions: the arguments of one part_to_folder, checked before anything is read."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....config.names import EDGES, LONG_EDGES, Edges
from ....errors import InputError, UsageError, nearest
from ....graph import Graph
from ...checks import check_k
from ...stream.edge_passes import Progress, check_relabel
from ...stream.methods import BALANCE, check_options
from ...stream.sources import EdgeStream, edge_stream, is_read_fast
from .edge_rows import Attributes
from .memory_budget import Memory, memory_bytes_of
from .part_tables import Dense, Sparse, check_rows, features_table, labels_table, split_table


@dataclass(frozen=True, eq=False)
class PipelineOptions:
    """The arguments of part_to_folder, checked.

    Args: memory    limit of this process's resident memory: 2GB, 500MB, a number of bytes.
          edges     both, in, out, see Graph.with_edges; auto: both, and what was chosen for a Graph.
          hops      of the halo: 0 none; 1 the nodes that a part reads; h > 1 also the rows of those within h - 1 hops.
          features  .npy (N, F), a SciPy CSR .npz, or an array; labels, split: .npy or arrays. N is then their number of rows.
          edge_features  .npy (E, F) or an array, a row for each edge of the source, where nothing is merged then;
                    antisymmetric: numbers of its columns whose sign a reverse edge changes, see Graph.
          owner     (N,) integers, an .npy of them, or a part file of METIS, instead of a method.
          n_nodes, format, relabel  see edge_stream; relabel numbers the distinct ids by value and writes ids.npy.
          progress  called with (pass, done, total); note: with single lines of text.
          method_options  of the method.
    Raises: UsageError, InputError or FormatError naming the argument, when it is made or its tables are first read.
    """

    source: Any
    k: int
    method: str = "spring"
    seed: int = 0
    balance: float = BALANCE
    _: KW_ONLY
    memory: str | int = "2GB"
    edges: Edges = "auto"
    hops: int = 1
    features: Any = None
    labels: Any = None
    split: Any = None
    edge_features: Any = None
    antisymmetric: Sequence[int] = ()
    owner: Any = None
    n_nodes: int | None = None
    format: str | None = None
    relabel: bool = False
    progress: Progress = None
    note: Callable[[str], None] | None = None
    method_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, *chosen, **options) -> PipelineOptions:
        """Return the options of a call; those of another name belong to the method."""
        names = {one.name for one in fields(cls)} - {"method_options"}
        own = {name: options.pop(name) for name in list(options) if name in names}
        return cls(*chosen, **own, method_options=options)

    def __post_init__(self):
        k, is_given = check_k(self.k), self.owner is not None
        check_options(
            "spring" if is_given else self.method, self.seed, self.balance, self.hops, {} if is_given else self.method_options
        )  # fmt: skip
        if self.edges not in EDGES:
            raise UsageError(f"edges = {self.edges!r} is not known{nearest(self.edges, EDGES)}")
        if not isinstance(self.relabel, (bool, np.bool_)):
            raise UsageError(f"relabel = {self.relabel!r}; expected True or False")
        if self.relabel:
            check_relabel(self.n_nodes)
        source, edges = self.source, LONG_EDGES["both" if self.edges == "auto" else self.edges]
        if isinstance(source, Graph):
            source = source.with_edges(self.edges)
            edges = source.edges
            if source.edge_attr is not None:
                raise InputError(
                    f"{source.name}: edges have attributes or relations, and a stream of edges carries none; use part_graph and "
                    "save_partition, or graph.without_edge_attr()"
                )
            if np.any(source.A.data != 1):
                raise InputError(
                    f"{source.name}: has weights, and a stream of edges carries none; use part_graph and save_partition, "
                    f"or make a Graph without weights"
                )
        features = sp.csr_array(self.features) if sp.issparse(self.features) else self.features
        numbers = {"k": k, "seed": int(self.seed), "balance": float(self.balance), "hops": int(self.hops)}
        for name, value in {"source": source, "edges": edges, "features": features, **numbers}.items():
            object.__setattr__(self, name, value)

    @cached_property
    def tables(self) -> dict[str, Dense | Sparse]:
        """The tables that were given, opened: features, labels, split; all have a row per node."""
        openers = {"features": features_table, "labels": labels_table, "split": split_table}
        values = {name: getattr(self, name) for name in openers}
        tables = {name: openers[name](value) for name, value in values.items() if value is not None}
        for table in tables.values():
            first = next(iter(tables.values()))
            if self.n_nodes is None:
                check_rows(table, first.rows, f"{first.where} has as many")
            else:
                check_rows(table, self.n_nodes, "--nodes is given")
        return tables

    @cached_property
    def attributes(self) -> Attributes | None:
        """The table of edge_features, opened; a row for each edge."""
        if self.edge_features is None:
            if self.antisymmetric:
                raise UsageError("antisymmetric requires edge_features")
            return None
        if isinstance(self.source, Graph):
            raise InputError(f"{self.source.name}: edge_features are of a stream; see Graph.edge_attr, save_partition")
        return Attributes(self.edge_features, self.antisymmetric)

    @property
    def given_nodes(self) -> int | None:
        """N as n_nodes or the tables give it, None if the stream has to be read for it."""
        if self.n_nodes is not None:
            return int(self.n_nodes)
        return None if self.relabel or not self.tables else next(iter(self.tables.values())).rows

    @property
    def path(self) -> Path | None:
        """The file of edges, if the source is one."""
        return Path(self.source) if isinstance(self.source, (str, Path)) else None

    @property
    def stream_edges(self) -> str:
        """How the edges of the stream are used: a Graph's A_ij are streamed as j, i."""
        return "reversed" if isinstance(self.source, Graph) else self.edges

    @property
    def is_copied(self) -> bool:
        """The first pass copies the edges as binary pairs: later passes would parse or relabel them again."""
        return self.relabel or not is_read_fast(self.source, self.format)

    def stream(self) -> EdgeStream:
        """Return the stream of edges."""
        where = next(iter(self.tables.values())).where if self.tables and self.n_nodes is None else ""
        return edge_stream(self.source, self.given_nodes, self.format, where)

    def budget(self) -> Memory:
        """Return the shares of the memory, with what this process holds now."""
        is_parsed = not is_read_fast(self.source, self.format)
        return Memory.now(memory_bytes_of(self.memory), self.method, self.k, self.hops, self.relabel, is_parsed)

    def key(self) -> dict:
        """Return everything that the result depends on: the work of a killed run with the same key is continued."""
        names = ("format", "edges", "k", "method", "seed", "balance", "hops")
        key: dict[str, Any] = {name: getattr(self, name) for name in names}
        key |= {"relabel": bool(self.relabel), "n_nodes": self.given_nodes, "memory": memory_bytes_of(self.memory)}
        key["options"] = {name: identity_of_option(value) for name, value in sorted(self.method_options.items())}
        key["antisymmetric"] = list(self.antisymmetric)
        inputs = ("source", "owner", "features", "labels", "split", "edge_features")
        return key | {name: identity(getattr(self, name)) for name in inputs}


def identity(source: object) -> list | str | None:
    """Return what identifies a source: path, size and time of a file, the hash of an array.

    An iterator has none: every run starts from the beginning.
    """
    if isinstance(source, (str, Path)):
        path = Path(source).absolute()
        if not path.exists():
            return str(path)
        found = path.stat()
        return [str(path), found.st_size, found.st_mtime_ns]
    if isinstance(source, Graph):
        return source.in_use().digest()
    if isinstance(source, sp.csr_array):
        arrays = source.indptr, source.indices, source.data
    elif isinstance(source, np.ndarray) and source.ndim:
        arrays = (source,)
    else:
        return None if source is None else secrets.token_hex()
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str} {array.shape}".encode())
        for start in range(0, len(array), 1 << 18):
            sha.update(np.ascontiguousarray(array[start : start + (1 << 18)]).data)
    return sha.hexdigest()


def identity_of_option(value: object) -> list | str | None:
    """Return what identifies the value of an option: its text, or the hash of an array, whose text is abbreviated."""
    array = np.asarray(value) if hasattr(value, "__array__") else None
    return repr(value) if array is None or array.ndim == 0 or array.dtype.hasobject else identity(array)
