"""A partition on disk: owner.npy, manifest.json, and a folder per part with what its rank loads.

manifest.json   sizes, method, seed, balance, digest and fingerprint of the graph, metrics; dtype, shape and SHA-256 of every file
owner.npy       (N,) int32, original order
ids.npy         (N,) int64, or ids_bytes.npy and ids_indptr.npy, what the user calls the nodes, where they have names
part-00000/     own, indptr, indices, weights, features | features_{indptr,indices,data}, labels, split, sums;
                edge_attr, edge_ids, edge_labels, edge_split of the nonzeros, see EdgeRows;
                of the halo: halo, halo_hops, halo_{indptr,indices,weights}, halo_features*, halo_sums
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...atomic import check_replaceable, new_folder, read_regular, sync
from ...data.readers.npz import read_npy
from ...data.save import write_npy
from ...errors import InputError, PartitionError, SpgnnError, UsageError
from ...graph import TRAIN, ColumnNames, Graph, count_classes, fingerprint, labelled, task_of
from ...graph.checks import checked_ids, packed_ids, unpacked_ids
from ...graph.graph import EDGE_META
from ..checks import check_hops
from ..partition import Partition
from .blocks import (
    EdgeRows,
    Halo,
    HaloFinder,
    RowBlock,
    check_halo_values,
    check_rank,
    check_values,
    matrix_sums,
    merge_blocks,
    row_block,
    select_rows,
)  # fmt: skip
from .part_manifest import FORMAT, checked_parts_manifest, sha256_of_file, write_manifest

FEATURES = ("features_indptr", "features_indices", "features_data", "features")
HALO = ("halo_indptr", "halo_indices", "halo_weights", *(f"halo_{name}" for name in FEATURES))
OTHERS = "labels split edge_attr edge_ids edge_labels edge_split sums halo halo_hops halo_sums".split()
ARRAYS = ("own", "indptr", "indices", "weights", *FEATURES, *OTHERS, *HALO)
TABLES = ("features", "halo_features", "edge_attr", "sums", "halo_sums")


def save_partition(partition: Partition, folder: str | Path, graph: Graph, hops: int = 1) -> None:
    """Write a partition, its row blocks and their halos; the folder appears whole or not at all.

    Args:   hops  of the halo of each part: 0 none; 1 the nodes that a part reads; h > 1 also the rows of those within
                  h - 1 hops. Averaging reads it, full-graph training does not.
    Raises: PartitionError if it was made for another graph; UsageError if folder exists and is no partition;
            ResourceError if it cannot be written.
    """
    hops = check_hops(hops)
    graph = graph.in_use()
    partition.check_graph(graph)
    if not partition.graph_digest:
        measured = partition.measured(graph.A)
        partition = replace(partition, graph_digest=graph.digest(), metrics=measured)
    folder = Path(folder)
    check_free(folder)
    with new_folder(Path(os.path.realpath(folder))) as new:
        for name, array in {"owner": partition.owner_N, **packed_ids(graph.ids)}.items():
            _write(new / f"{name}.npy", array)
        parts, train = [], []
        finder, sums_N3 = HaloFinder(graph.A, hops), matrix_sums(graph.A)
        for rank in range(partition.k):
            block, part = row_block(graph, partition, rank), new / part_name(rank)
            part.mkdir()
            files = _arrays(block) | {"sums": sums_N3[block.own_n]} | _halo_arrays(graph, finder, block.own_n, sums_N3)
            train.append(train_counts(block.y_n, block.split_n))
            for name, array in files.items():
                _write(part / f"{name}.npy", array)
            sync(part)
            parts.append(described(part))
        manifest = {
            "n_nodes": graph.n_nodes,
            "nnz": graph.nnz,
            "k": partition.k,
            "method": partition.method,
            "seed": partition.seed,
            "balance": partition.balance,
            "seconds": partition.seconds,
            "graph": graph.name,
            "edges": graph.edges,
            "graph_digest": partition.graph_digest,
            "fingerprint": fingerprint(graph),
            "metrics": partition.metrics,
            "owner_sha256": sha256_of(partition.owner_N),
            "n_features": graph.n_features,
            "n_classes": graph.n_classes,
            **{name: names for name in ("classes", "feature_names") if (names := getattr(graph, name)) is not None},
            **({} if graph.edge_attr is None else {"edge_meta": edge_meta(graph)}),
            **{name: of for name, of in graph.meta.items() if name == "node_types"},
            "hops": hops,
            "train": train,
            "parts": parts,
        }
        write_manifest(new, manifest)


def described(part: Path) -> dict[str, dict]:
    """Return dtype, shape and SHA-256 of the file of each array of a part."""
    found = {}
    for name in ARRAYS:
        if (path := part / f"{name}.npy").exists():
            array = read_npy(path, mmap=True)
            found[name] = {"dtype": array.dtype.str, "shape": array.shape, "sha256": sha256_of_file(path)}
    return found


class PartitionFolder:
    """An open partition folder; it reads the manifest and owner.npy when they are first needed, and once.

        folder = PartitionFolder("parts")
        folder.manifest["k"], folder.hash
        part, block = folder.partition(), folder.block(rank)

    Raises: PartitionError naming the file, what it holds and what was expected, when something is first read.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._verified: set[Path] = set()

    def __repr__(self) -> str:
        return f"PartitionFolder({str(self.path)!r})"

    @cached_property
    def _manifest_bytes(self) -> bytes:
        try:
            return read_regular(self.path / "manifest.json")
        except OSError as error:
            raise _no_manifest(self.path / "manifest.json", error) from None

    @cached_property
    def manifest(self) -> dict:
        """manifest.json, checked: version, n_nodes, k, hops, metrics, graph_digest, dtype and shape of each array, ..."""
        return checked_parts_manifest(self.path / "manifest.json", self._manifest_bytes)

    @property
    def hash(self) -> str:
        """SHA-256 of manifest.json, which has the digests of owner.npy and of the graph; 64 hex digits."""
        return hashlib.sha256(self._manifest_bytes).hexdigest()

    @cached_property
    def is_valid(self) -> bool:
        """The folder has a valid manifest: save_partition or part_to_folder wrote it."""
        try:
            return bool(self.manifest)
        except PartitionError:
            return False

    @cached_property
    def _partition(self) -> Partition:
        manifest = self.manifest
        owner_N = np.array(_map(self.path / "owner.npy", "<i4", [manifest["n_nodes"]]))
        owner_N.flags.writeable = False
        self._check_file(self.path / "owner.npy", manifest["files"].get("owner.npy", ""))
        if sha256_of(owner_N) != manifest["owner_sha256"]:
            raise PartitionError(
                f"{self.path / 'owner.npy'}: the SHA-256 differs from the manifest's; write the partition again"
            )
        keys = ("k", "method", "seed", "metrics", "graph_digest", "balance")
        made_for = {"graph_name": str(manifest.get("graph", "")), "edges": str(manifest.get("edges", ""))}
        seconds = manifest.get("seconds", 0.0)
        return Partition(owner_N, **{key: manifest[key] for key in keys}, seconds=seconds, **made_for)

    def partition(self, graph: Graph | None = None) -> Partition:
        """Return the Partition; with a graph, check that it was made for it."""
        if graph is not None:
            self._partition.check_graph(graph)
        return self._partition

    def describe(self) -> dict:
        """Return what `spgnn info` reports: the graph that was partitioned, how, and the sizes of its parts."""
        sizes = np.bincount(self.partition().owner_N, minlength=self.manifest["k"]).tolist()
        keys = ("graph", "k", "method", "edges", "n_nodes", "nnz", "n_features", "n_classes", "hops", "balance", "seed")
        found = {key: self.manifest[key] for key in keys if key in self.manifest}
        named = {"feature_names": self.names.features, "class_names": self.names.classes}
        found |= {key: list(names) for key, names in named.items() if names is not None}
        of_edges = dict(self.manifest.get("edge_meta", {}))
        if of_edges:
            of_edges = {"edge_attr": self.manifest["parts"][0]["edge_attr"]["shape"][1]} | of_edges
        return {"format": "partition"} | found | of_edges | {"smallest_part": min(sizes), "largest_part": max(sizes)}

    @property
    def names(self) -> ColumnNames:
        """Names of columns."""
        manifest = self.manifest
        of = {"features": manifest.get("feature_names"), "node_types": manifest.get("node_types", {}).get("names")}
        return ColumnNames.read(manifest | manifest.get("edge_meta", {}) | of)

    def ids(self) -> np.ndarray | None:
        """Return what the user calls the nodes, (N,) int64 or str, original order; None: 0 to N - 1."""
        files = self.manifest["files"]
        names = [name for name in ("ids", "ids_bytes", "ids_indptr") if f"{name}.npy" in files]
        for name in names:
            self._check_file(self.path / f"{name}.npy", files[f"{name}.npy"])
        try:
            ids = unpacked_ids({name: read_npy(self.path / f"{name}.npy") for name in names})
            return checked_ids(ids, self.manifest["n_nodes"])
        except (KeyError, SpgnnError) as error:
            raise PartitionError(f"{self.path}: ids: {error}; write the partition again") from None

    def block(self, rank: int) -> RowBlock:
        """Memory-map what one rank owns, read-only; no other part and no owner.npy is opened.

        Not cached, so that its pages can be freed; the first time, files are compared with their SHA-256.
        Raises: UsageError if there is no such part.
        """
        with self._part(rank) as files:
            own_n, n_nodes = files["own"], self.manifest["n_nodes"]
            A_nN = _csr(files, "", "weights", (len(own_n), n_nodes))
            X_nF = self._features(files, "features", len(own_n))
            y_n, split_n, edges = files.get("labels"), files.get("split"), None
            if "edge_attr" in files:
                listed, is_reversed = self.manifest["edge_meta"]["edges_listed"], self.manifest["edges"] == "reversed"
                labels = files.get("edge_labels"), files.get("edge_split"), is_reversed
                edges = EdgeRows(files["edge_attr"], files["edge_ids"], listed, *labels)
            of = {"n_nodes": n_nodes, "k": self.manifest["k"], "rank": rank}
            return RowBlock(own_n, A_nN, X_nF, y_n, split_n, **of, edges=edges)

    def graph(self) -> Graph:
        """Return the whole graph as it is used, of the blocks of all parts. Raises: as `checked_block`."""
        whole = merge_blocks([self.checked_block(rank) for rank in range(self.manifest["k"])], 1, 0)
        name, edges = self.manifest["graph"], self.manifest["edges"]
        fields: dict[str, Any] = {"name": name, "edges": edges, "ids": self.ids(), "classes": self.names.classes}
        fields["feature_names"] = self.names.features
        fields["meta"] = {name: of for name, of in self.manifest.items() if name == "node_types"}
        if whole.edges is not None:
            fields |= {
                "edge_attr": whole.edges.attr_EF,
                "edge_ids": whole.edges.ids_E,
                "edge_y": whole.edges.listed("y_E"),
                "edge_split": whole.edges.listed("split_E"),
                "edge_classes": self.names.edge_classes,
            }
            fields["meta"] |= {name: of for name, of in self.manifest["edge_meta"].items() if name in EDGE_META}
        return Graph(whole.A_nN, whole.X_nF, whole.y_n, whole.split_n, **fields)

    def checked_block(self, rank: int) -> RowBlock:
        """Return what one rank owns, with values that are checked. Raises: PartitionError naming file and node."""
        block = self.block(rank)
        self.check_values(block)
        return block

    def sums(self, rank: int) -> np.ndarray:
        """Memory-map the row sum, the column sum and the diagonal of the own nodes in the whole graph, (n, 3) float64.

        The diagonal is NaN where no entry is stored.
        """
        with self._part(rank) as files:
            if files["sums"].shape != (len(files["own"]), 3):
                raise ValueError(f"sums has shape {files['sums'].shape}; expected ({len(files['own'])}, 3)")
            return files["sums"]

    def check_hops(self, hops: int) -> None:
        """Raise PartitionError, with the remedy, unless the folder has halos of so many hops."""
        has = self.manifest["hops"]
        if hops > has:
            write = f"partition the graph again, `spgnn partition GRAPH -k K --hops {hops} --out DIR`"
            raise PartitionError(f"{self.path}: has a halo of {has} hops, got hops = {hops}; {write}")

    def halo(self, rank: int) -> Halo | None:
        """Memory-map the halo of a part, or return None if the folder has none: `hops` of save_partition writes it."""
        with self._part(rank, of_halo=True) as files:
            if not files and not self.manifest["hops"]:
                return None
            node_g, n_nodes = files["halo"], self.manifest["n_nodes"]
            A_gN = _csr(files, "halo_", "weights", (len(node_g), n_nodes)) if "halo_indptr" in files else None
            X_gF = self._features(files, "halo_features", len(node_g))
            return Halo(node_g, files["halo_hops"], A_gN, X_gF, n_nodes, rank, files["halo_sums"])

    def check_values(self, block: RowBlock | Halo) -> None:
        """Raise PartitionError naming file and node if a feature, label, split, sum or count is invalid; reads all of them."""
        part, manifest = self.path / part_name(block.rank), self.manifest
        if isinstance(block, Halo):
            check_halo_values(part, block)
            return
        check_values(part, block, manifest["n_nodes"], self.sums(block.rank))
        found, listed = train_counts(block.y_n, block.split_n), manifest["train"][block.rank]
        if found != listed:
            raise PartitionError(
                f"{self.path / 'manifest.json'}: train of part {block.rank} is {listed}, its labels and split have {found}; "
                "write the partition again"
            )

    @contextmanager
    def _part(self, rank: int, of_halo: bool = False) -> Iterator[dict[str, np.ndarray]]:
        """Yield the mapped arrays of a part, or of its halo; arrays that do not make a block raise PartitionError."""
        check_rank(rank, self.manifest["k"])
        part = self.path / part_name(rank)
        try:
            entries = self.manifest["parts"][rank]
            if unknown := entries.keys() - set(ARRAYS):
                raise KeyError(min(unknown))
            names = [name for name in entries if name.startswith("halo") == of_halo]
            yield {name: self._array(part / f"{name}.npy", entries[name]) for name in names}
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise PartitionError(
                f"{self.path / 'manifest.json'}: part {rank} is not described as expected ({error!r}); write the partition again"
            ) from None
        except ValueError as error:
            raise PartitionError(f"{part}: the arrays do not make a row block: {error}") from None

    def _array(self, path: Path, entry: dict) -> np.ndarray:
        """Map an array that a manifest describes; the first time it is compared with its SHA-256."""
        array, name = _map(path, entry["dtype"], entry["shape"]), path.stem
        axes = (1, 2) if name in ("labels", "split") else (2,) if name in TABLES else (1,)
        if array.dtype.kind not in "biuf" or array.ndim not in axes:
            raise PartitionError(f"{path}: holds {array.dtype} {array.shape}; expected numbers of {axes[-1]} axes")
        self._check_file(path, entry["sha256"])
        return array

    def _check_file(self, path: Path, sha256: str) -> None:
        """Compare a file with its SHA-256, once."""
        if path in self._verified:
            return
        if not path.is_file() or sha256_of_file(path) != sha256:
            raise PartitionError(f"{path}: the SHA-256 differs from the manifest's; write the partition again")
        self._verified.add(path)

    def _features(self, files: dict[str, np.ndarray], name: str, n: int) -> np.ndarray | sp.csr_array | None:
        if f"{name}_data" in files:
            return _csr(files, f"{name}_", "data", (n, self.manifest["n_features"]))
        X_nF = files.get(name)
        if X_nF is not None and X_nF.shape != (n, self.manifest["n_features"]):
            raise ValueError(f"{name} has shape {X_nF.shape}; expected {(n, self.manifest['n_features'])}")
        return X_nF


def load_partition(folder: str | Path, graph: Graph | None = None) -> Partition:
    """Read owner.npy and the manifest; with a graph, check that they were made for it.

    Raises: PartitionError naming the file, what it holds and what was expected.
    """
    return PartitionFolder(folder).partition(graph)


def is_partition(path: str | Path) -> bool:
    """Return whether a folder has a manifest of a partition, valid or not."""
    try:
        manifest = json.loads(read_regular(Path(path) / "manifest.json"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def part_name(rank: int) -> str:
    """Return the name of the folder of a part."""
    return f"part-{rank:05d}"


def _arrays(block: RowBlock) -> dict[str, np.ndarray]:
    A = block.A_nN
    arrays = {"own": block.own_n, "indptr": A.indptr, "indices": A.indices, "weights": A.data}
    arrays |= _table("features", block.X_nF) | {"labels": block.y_n, "split": block.split_n}
    if block.edges is not None:
        arrays |= {"edge_attr": block.edges.attr_EF, "edge_ids": block.edges.ids_E}
        arrays |= {"edge_labels": block.edges.y_E, "edge_split": block.edges.split_E}
    return {name: array for name, array in arrays.items() if array is not None}


def _halo_arrays(graph: Graph, finder: HaloFinder, own_n: np.ndarray, sums_N3: np.ndarray) -> dict[str, np.ndarray]:
    if not finder.hops:
        return {}
    node_g, hop_g = finder.halo(own_n)
    arrays = {"halo": node_g, "halo_hops": hop_g, "halo_sums": sums_N3[node_g]}
    if finder.hops > 1:
        rows = finder.rows(node_g, hop_g)
        arrays |= {"halo_indptr": rows.indptr, "halo_indices": rows.indices, "halo_weights": rows.data}
    return arrays | _table("halo_features", select_rows(graph.X, node_g))


def _table(name: str, X: np.ndarray | sp.csr_array | None) -> dict[str, np.ndarray]:
    """Return the arrays of a dense or sparse table by the names of their files."""
    if sp.issparse(X):
        return {f"{name}_{part}": getattr(X, part) for part in ("indptr", "indices", "data")}
    return {} if X is None else {name: X}


def train_counts(y_n: np.ndarray | None, split_n: np.ndarray | None) -> list[int] | None:
    """Return the labelled training nodes of a part in each split, or None without labels or split."""
    if y_n is None or split_n is None:
        return None
    split_nS = split_n[:, None] if split_n.ndim == 1 else split_n
    return ((split_nS == TRAIN) & labelled(y_n)[:, None]).sum(axis=0).tolist()


def edge_meta(graph: Graph) -> dict:
    """Return what a graph says of the attributes and labels of its edges."""
    found = {name: graph.meta[name] for name in EDGE_META if name in graph.meta}
    found |= {} if graph.edge_classes is None else {"edge_classes": list(graph.edge_classes)}
    known = {"edge_targets": count_classes(graph.edge_y), "edge_task": task_of(graph.edge_y)}
    return found | (known if graph.edge_y is not None else {})


def _csr(files: dict[str, np.ndarray], prefix: str, values: str, shape: tuple[int, int]) -> sp.csr_array:
    # SciPy does not copy the maps, as indices and indptr share a dtype.
    return sp.csr_array(tuple(files[prefix + name] for name in (values, "indices", "indptr")), shape=shape, copy=False)


def _map(path: Path, dtype: str, shape: list[int]) -> np.ndarray:
    try:
        array = read_npy(path, mmap=True)
    except InputError as error:
        raise PartitionError(f"{error}; write the partition again") from None
    if array.dtype.str != dtype or list(array.shape) != list(shape):
        raise PartitionError(f"{path}: holds {array.dtype.str} {array.shape}; the manifest says {dtype} {tuple(shape)}")
    return array


def _no_manifest(path: Path, error: Exception) -> PartitionError:
    return PartitionError(f"{path}: cannot be read: {error}; expected a folder that `spgnn partition --out` wrote")


def check_free(folder: Path) -> None:
    """Raise unless folder is absent, empty, or a partition, and nothing else, that may be replaced."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        if not (folder / "manifest.json").is_file():
            raise UsageError(f"{folder} exists and is not a partition; choose another --out")
        _ = PartitionFolder(folder).manifest  # raises unless a partition has it
        check_replaceable(folder, ("manifest.json", "owner.npy", "ids*.npy", "part-*"))


def _write(path: Path, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        write_npy(file, array)
        file.flush()
        os.fsync(file.fileno())


def sha256_of(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's bytes, 64 hex digits."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
