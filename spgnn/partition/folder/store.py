"""A partition on disk: owner.npy, manifest.json, and a folder a part with what that rank loads.

manifest.json   sizes, method, seed, balance, digest of the graph, metrics, dtype and shape of every file
owner.npy       (N,) int32, original order
part-00000/     own, indptr, indices, weights, features | features_{indptr,indices,data}, labels, split
"""

from __future__ import annotations

import hashlib
import json
import os
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...atomic import new_folder, sync
from ...errors import PartitionError, UsageError
from ...graph import Graph
from ..metrics import metrics
from ..partition import Partition
from .blocks import Halo, RowBlock, check_rank, row_blocks

VALUES_AT_A_TIME = 1 << 16  # rows of features
FORMAT, VERSION = "spgnn-partition", 1


def save_partition(partition: Partition, folder: str | Path, graph: Graph) -> None:
    """Write a partition and its row blocks; the folder appears whole or not at all.

    Raises: PartitionError where it was made for another graph; UsageError where folder is something
            else than a partition; ResourceError where the disk refuses.
    """
    graph = graph.in_use()
    partition.check_graph(graph)
    if not partition.graph_digest:
        measured = metrics(graph.A, partition.owner_N, partition.k)
        partition = replace(partition, graph_digest=graph.digest(), metrics=measured)
    folder = Path(folder)
    check_free(folder)
    with new_folder(folder) as aside:
        _write(aside / "owner.npy", partition.owner_N)
        parts = []
        for block in row_blocks(graph, partition):
            part = aside / part_name(block.rank)
            part.mkdir()
            files = _arrays(block)
            for name, array in files.items():
                _write(part / f"{name}.npy", array)
            sync(part)
            parts.append({name: {"dtype": a.dtype.str, "shape": a.shape} for name, a in files.items()})
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
            "metrics": partition.metrics,
            "owner_sha256": sha256_of(partition.owner_N),
            "n_features": graph.n_features,
            "parts": parts,
        }
        write_manifest(aside, manifest)


def write_manifest(folder: Path, entries: dict) -> None:
    """Write manifest.json, the file that makes a folder a partition."""
    with open(folder / "manifest.json", "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "version": VERSION} | entries, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def load_partition(folder: str | Path, graph: Graph | None = None) -> Partition:
    """Read owner.npy and the manifest; with a graph, check that they were made for it.

    Raises: PartitionError naming the file, what it holds and what was expected.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    owner = np.array(_map(folder / "owner.npy", "<i4", [manifest["n_nodes"]]))
    if sha256_of(owner) != manifest["owner_sha256"]:
        raise PartitionError(
            f"{folder / 'owner.npy'}: the SHA-256 differs from the manifest's; write the partition again"
        )
    keys = ("k", "method", "seed", "metrics", "graph_digest", "balance")
    made_for = {"graph_name": str(manifest.get("graph", "")), "edges": str(manifest.get("edges", ""))}
    partition = Partition(
        owner, **{key: manifest[key] for key in keys}, seconds=manifest.get("seconds", 0.0), **made_for
    )
    if graph is not None:
        partition.check_graph(graph)
    return partition


def load_block(folder: str | Path, rank: int) -> RowBlock:
    """Memory-map what one rank owns, read-only; no other part is opened.

    Raises: PartitionError naming the file; UsageError where there is no such part.
    """
    with _part(folder, rank) as (files, manifest):
        own_n, n_nodes = files["own"], manifest["n_nodes"]
        A_nN = _csr(files, "", "weights", (len(own_n), n_nodes))
        X_nF = _features(files, "features", len(own_n), manifest)
        return RowBlock(
            own_n, A_nN, X_nF, files.get("labels"), files.get("split"), n_nodes=n_nodes, k=manifest["k"], rank=rank
        )


def check_values(folder: str | Path, block: RowBlock) -> None:
    """Raise PartitionError, with file and node, for a dense feature that is not finite, a label or a split that there cannot be; reads all of them."""
    part = Path(folder) / part_name(block.rank)
    X_nF = None if sp.issparse(block.X_nF) else block.X_nF  # a CSR was looked at when it was made
    for start in range(0, 0 if X_nF is None else len(X_nF), VALUES_AT_A_TIME):
        is_finite = np.isfinite(X_nF[start : start + VALUES_AT_A_TIME]).all(1)
        if not is_finite.all():
            node = block.own_n[start + int(np.argmin(is_finite))]
            raise PartitionError(
                f"{part / 'features.npy'}: node {node} has a feature that is not finite; write the partition again"
            )
    low, high = (0, 1) if np.ndim(block.y_n) == 2 else (-1, np.inf)
    for name, values, low, high in (("labels", block.y_n, low, high), ("split", block.split_n, -1, 2)):
        bad = (values < low) | (values > high) if values is not None else np.zeros(0, bool)
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            raise PartitionError(
                f"{part / name}.npy: node {block.own_n[at[0]]} has {values[at]}; expected {low} {'or more' if high == np.inf else f'to {high}'}"
            )


def load_halo(folder: str | Path, rank: int) -> Halo | None:
    """Memory-map the halo of one part, or return None where the folder has none: part_to_folder(..., hops=1) writes it.

    Raises: PartitionError naming the file; UsageError where there is no such part.
    """
    with _part(folder, rank) as (files, manifest):
        if "halo" not in files:
            return None
        node_g, n_nodes = files["halo"], manifest["n_nodes"]
        hop_g = files.get("halo_hops", np.broadcast_to(np.int8(1), len(node_g)))
        A_gN = _csr(files, "halo_", "weights", (len(node_g), n_nodes)) if "halo_indptr" in files else None
        return Halo(node_g, hop_g, A_gN, _features(files, "halo_features", len(node_g), manifest), n_nodes, rank)


@contextmanager
def _part(folder: str | Path, rank: int) -> Iterator[tuple[dict[str, np.ndarray], dict]]:
    """Yield the mapped arrays of a part and the manifest; what does not fit in the block is a PartitionError."""
    folder = Path(folder)
    manifest = _read_manifest(folder)
    check_rank(rank, manifest["k"])
    part = folder / part_name(rank)
    try:
        listed = {name: (entry["dtype"], entry["shape"]) for name, entry in manifest["parts"][rank].items()}
        yield {name: _map(part / f"{name}.npy", dtype, shape) for name, (dtype, shape) in listed.items()}, manifest
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise PartitionError(
            f"{folder / 'manifest.json'}: part {rank} is not described as expected: {error!r}"
        ) from None
    except ValueError as error:
        raise PartitionError(f"{part}: the arrays do not make a row block: {error}") from None


def is_partition(path: str | Path) -> bool:
    """path is a folder that save_partition or part_to_folder wrote: its manifest says so."""
    try:
        _read_manifest(Path(path))
    except PartitionError:
        return False
    return True


def part_name(rank: int) -> str:
    """Return the name of the folder of a part."""
    return f"part-{rank:05d}"


def _arrays(block: RowBlock) -> dict[str, np.ndarray]:
    A, X = block.A_nN, block.X_nF
    arrays = {"own": block.own_n, "indptr": A.indptr, "indices": A.indices, "weights": A.data}
    if sp.issparse(X):
        arrays |= {"features_indptr": X.indptr, "features_indices": X.indices, "features_data": X.data}
    arrays |= {"features": None if sp.issparse(X) else X, "labels": block.y_n, "split": block.split_n}
    return {name: array for name, array in arrays.items() if array is not None}


def _features(files: dict[str, np.ndarray], name: str, n: int, manifest: dict):
    return _csr(files, f"{name}_", "data", (n, manifest["n_features"])) if f"{name}_data" in files else files.get(name)


def _csr(files: dict[str, np.ndarray], prefix: str, values: str, shape: tuple[int, int]) -> sp.csr_array:
    # scipy keeps the maps as they are, without a copy, because indices and indptr share a dtype.
    return sp.csr_array(tuple(files[prefix + name] for name in (values, "indices", "indptr")), shape=shape, copy=False)


def _map(path: Path, dtype: str, shape: list[int]) -> np.ndarray:
    # Mapping refuses an object array and a header that declares more than the file holds.
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, OverflowError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise PartitionError(f"{path}: cannot be read: {error}; write the partition again") from None
    if array.dtype.str != dtype or list(array.shape) != list(shape):
        raise PartitionError(f"{path}: holds {array.dtype.str} {array.shape}; the manifest says {dtype} {tuple(shape)}")
    return array


def _read_manifest(folder: Path) -> dict:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PartitionError(
            f"{path}: cannot be read: {error}; expected a folder that `spgnn partition --out` wrote"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PartitionError(f'{path}: is not the manifest of a partition; expected "format": "{FORMAT}"')
    if manifest.get("version") != VERSION:
        raise PartitionError(f"{path}: has version {manifest.get('version')!r}; this spgnn reads version {VERSION}")
    kinds = {"n_nodes": int, "k": int, "n_features": int, "method": str, "seed": int, "metrics": dict, "parts": list,
             "graph_digest": str, "owner_sha256": str, "balance": (int, float)}  # fmt: skip
    kinds |= {"seconds": (int, float)} if "seconds" in manifest else {}
    for key, kind in kinds.items():
        if not isinstance(manifest.get(key), kind) or (kind is int and manifest[key] < 0):
            raise PartitionError(f"{path}: {key} is {manifest.get(key)!r}; write the partition again")
    return manifest


def check_free(folder: Path) -> None:
    """Raise unless folder is absent, empty, or a partition that may be replaced."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        if not (folder / "manifest.json").is_file():
            raise UsageError(f"{folder} exists and is not a partition; choose another --out")
        _read_manifest(folder)


def _write(path: Path, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def sha256_of(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's bytes, 64 hex digits."""
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
