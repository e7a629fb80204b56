"""Fingerprints of the data of a distributed graph, whatever the ranks.

Shapes: n own rows, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..config.names import Task
from ..distgraph import DistGraph, Parts
from ..distgraph.merged_parts import parts_digest
from ..distgraph.tensors import features
from ..errors import CheckpointError, together
from ..graph import WITH_LOOPS, Graph, given_split, random_split
from ..partition import RowBlock
from ..spmm.exchange.stages import Blocks
from ..spmm.kernels.buffers import BufferPool, sum_dtype
from ..spmm.operator.features import SparseRows

CHUNK = 1 << 16  # rows of X at once
NONZEROS = 1 << 18  # of A at once
FIX = "give the graph that the run was trained on"
Labels = tuple[Any, Any]  # labels and split of rows, each an array, a tensor or None


def graph_facts(dgraph: DistGraph) -> dict[str, Any]:
    """Return sizes and fingerprints of a graph, the same on any ranks.

    fingerprint  sum over nodes of mix(id) times degree, labels, split and the bits of the features in the type of the
                 activations. Call it while X is there, see Trainer.release_input.
    edges        sum over edges of their ends, weights and attributes, see _of_edges and _of_attributes.
    Collective.
    """
    A, ids_n = dgraph.A, _mixed(dgraph.node_n)
    lengths_n = np.diff(A.blocks.A_oo.indptr) + np.diff(A.blocks.A_og.indptr)
    terms = [_product(ids_n, lengths_n[:, None])]  # 1.5D: ranks of a process row have the same rows, other columns
    if dgraph.is_counted:
        terms.append(_of_rows(ids_n, (dgraph.y_n, dgraph.split_n), dgraph.X, dgraph.task))
    raw = A.norms.raw[A.name in WITH_LOOPS]
    edges = [_of_edges(ids_n, raw.blocks)]
    if (table := A.edge_table) is not None:
        edges.append(_of_attributes(table.ids_E, table.attr_EF))
    sums = np.array([_total(terms), _total(edges)]).view(np.int64)
    dgraph.comm.all_reduce(sums)
    sizes = (dgraph.n_nodes, dgraph.nnz, dgraph.n_features, dgraph.n_classes)
    return _graph_facts(sizes, sums)


def graph_facts_of_parts(parts: Parts) -> dict[str, Any]:
    """Return graph_facts of a graph that no rank holds, from the own rows of its parts, read one after another.

    Raises: PartitionError naming file and node for damaged arrays. Collective.
    """
    sums = together(parts.comm, _of_own_rows, parts).view(np.int64)
    parts.comm.all_reduce(sums)
    sizes = (parts.n_nodes, int(sums[2]), parts.source.facts.n_features, parts.n_classes)
    return _graph_facts(sizes, sums[:2])


def parts_facts(parts: Parts) -> dict[str, Any]:
    """Return sizes and fingerprints of a graph whose parts models are trained on, the same on any ranks.

    fingerprint  as of graph_facts, of features, labels and the split of the training; of the files of own parts, read
                 one after another.
    parts        k and digests of the owners and of the edges.
    Raises: PartitionError naming file and node for damaged arrays. Collective.
    """
    terms = np.array([together(parts.comm, _of_parts, parts)]).view(np.int64)
    parts.comm.all_reduce(terms)
    sizes = {"nodes": parts.n_nodes, "features": parts.source.facts.n_features, "classes": parts.n_classes}
    return sizes | {"fingerprint": f"{int(terms.view(np.uint64)[0]):016x}", "parts": parts_digest(parts)}


def without_owners(facts: dict[str, Any]) -> dict[str, Any]:
    """Return parts_facts with the digest of the edges, `edges`, instead of `parts`: what predictions depend on."""
    others = {name: value for name, value in facts.items() if name != "parts"}
    return others | ({"edges": facts["parts"].rpartition("-")[2]} if "parts" in facts else {})


def facts_of_any_parts(graph: Graph, split: str, seed: int, dtype: str) -> dict[str, Any]:
    """Return without_owners(parts_facts) of a graph that this rank holds, whatever its parts are."""
    graph, ids_N = graph.in_use(), _mixed(np.arange(graph.n_nodes))
    y_N, split_N = graph.y, None
    if y_N is not None:
        split_N = given_split(graph.name, graph.split, split)
        split_N = random_split(y_N, seed) if split_N is None else split_N
    fingerprint = _of_rows(ids_N, (y_N, split_N), graph.X, graph.task, getattr(torch, dtype))
    sizes = {"nodes": graph.n_nodes, "features": graph.n_features, "classes": graph.n_classes}
    return sizes | {"fingerprint": f"{int(fingerprint):016x}", "edges": graph.digest()[:16]}


def check_graph(path: Path, made_on: dict[str, Any], facts: dict[str, Any], fix: str = FIX) -> None:
    """Raise CheckpointError unless a checkpoint was made on a graph of these facts; fix: what to do then."""
    names = [name for name in facts if made_on.get(name) != facts[name]]
    if names:
        what = {"fingerprint": "fingerprint of features, labels and split"} if names == ["fingerprint"] else {}
        differ = ", ".join(f"{what.get(name, name)} {made_on.get(name)}, here {facts[name]}" for name in names)
        raise CheckpointError(f"{path} was made on another graph ({differ}); {fix}")


def check_parts(path: Path, made_on: dict[str, Any], facts: dict[str, Any]) -> None:
    """Raise CheckpointError where models were averaged over other parts than here, each k and a digest of the owners."""
    before, here = made_on.get("parts"), facts.get("parts")
    if before is not None and here is not None and before != here:
        raise CheckpointError(
            f"{path} was trained on other parts (k and owners {before}, here {here}), on which averaging depends; "
            "give the same --partition"
        )


def _graph_facts(sizes: tuple[int, int, int, int], sums: np.ndarray) -> dict[str, Any]:
    fingerprint, edges = (f"{value:016x}" for value in sums.view(np.uint64).tolist())
    named = dict(zip(("nodes", "nonzeros", "features", "classes"), sizes))
    return named | {"fingerprint": fingerprint, "edges": edges}


def _of_parts(parts: Parts) -> np.uint64:
    """Return the sum over own nodes of mix(id) times labels, split and the bits of the features in the type of activations."""
    dtype, task, terms = getattr(torch, parts.how.dtype), parts.source.facts.task, []
    for p in parts.own:
        block = parts.source.block(p)
        ids_n = _mixed(block.own_n)
        terms.append(_of_rows(ids_n, parts.labels(block, len(ids_n)), block.X_nF, task, dtype))
    return _total(terms)


def _of_own_rows(parts: Parts) -> np.ndarray:
    """Return (3,) uint64: of the own rows of own parts, what graph_facts adds up, and the number of nonzeros."""
    how, sums, pool = parts.how, np.zeros(3, np.uint64), BufferPool()
    for p in parts.own:
        block = parts.source.block(p)
        ids_n, A, lengths_n = _mixed(block.own_n), block.A_nN, np.diff(block.A_nN.indptr).astype(np.int64)
        edges = _of_entries(ids_n, A, lambda columns: _mixed(_mixed(columns)))
        if how.operator in WITH_LOOPS:
            lacks_n = _lacks_loop(block)
            lengths_n += lacks_n
            one = _mixed(np.ones(1, np.float32).view(np.uint32))
            edges = np.add(edges, (ids_n * _mixed(ids_n) * one)[lacks_n].sum(dtype=np.uint64), dtype=np.uint64)
        if block.edges is not None:
            of_edges = _of_attributes(block.edges.ids_E, block.edges.attr_EF, sum_dtype(getattr(torch, how.dtype)))
            edges = np.add(edges, of_edges, dtype=np.uint64)
        X = features(block.X_nF, how.feature_norm, pool, getattr(torch, how.dtype), how.threads)
        terms = [
            _product(ids_n, lengths_n[:, None]),
            _of_rows(ids_n, (block.y_n, block.split_n), X, parts.source.facts.task),
        ]
        sums += np.array([_total(terms), edges, lengths_n.sum()], np.uint64)
    return sums


def _lacks_loop(block: RowBlock) -> np.ndarray:
    """Return which own nodes have no edge to themselves, (n,) bool."""
    A, lacks_n = block.A_nN, np.ones(len(block.own_n), bool)
    for start in range(0, len(lacks_n), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(lacks_n)))
        row_E = np.repeat(rows, np.diff(A.indptr[start : rows[-1] + 2]))
        lacks_n[row_E[block.own_n[row_E] == A.indices[A.indptr[start] : A.indptr[rows[-1] + 1]]]] = False
    return lacks_n


def _of_rows(ids_n: np.ndarray, labels: Labels, X, task: Task, dtype: torch.dtype | None = None) -> np.uint64:
    """Return the fingerprint of labels, split, (n,) or (n, C), and features of rows; dtype: into which these are rounded.

    Args: task  what the labels are.
    """
    arrays = [np.asarray(values) for values in labels if values is not None]
    wide = [values.reshape(len(ids_n), math.prod(values.shape[1:])) for values in arrays]  # also without rows
    # Numbers count by their bits in float32, whatever type a rank has them in.
    is_number = lambda values: task == "numbers" and values.dtype.kind == "f"
    terms = [_product(ids_n, _bits(v, torch.float32) if is_number(v) else v.astype(np.int64) + 2) for v in wide]
    X = X.csr.to_scipy() if isinstance(X, SparseRows) else X
    if sp.issparse(X):
        terms.append(
            (_bits(X.data, dtype) * _mixed(X.indices) * np.repeat(ids_n, np.diff(X.indptr))).sum(dtype=np.uint64)
        )
    elif X is not None:
        parts = [slice(start, start + CHUNK) for start in range(0, len(ids_n), CHUNK)]
        terms += [_product(ids_n[part], _bits(X[part], dtype)) for part in parts]
    return _total(terms)


def _of_edges(ids_n: np.ndarray, blocks: Blocks) -> np.uint64:
    """Return the sum over nonzeros of mix(row) times mix(mix(column)) times mix(weight), modulo 2^64."""
    total = np.uint64(0)
    for A, ids_m in ((blocks.A_oo, blocks.index.own_n), (blocks.A_og, blocks.index.ghost_g)):
        columns_m = _mixed(_mixed(ids_m))
        total = np.add(total, _of_entries(ids_n, A, columns_m.__getitem__), dtype=np.uint64)
    return total


def _of_attributes(ids_E: np.ndarray, attr_EF, dtype: torch.dtype | None = None) -> np.uint64:
    """Return the sum over nonzeros of mix(place in the list of edges) times the bits of their attributes, modulo 2^64."""
    parts = [slice(start, start + NONZEROS) for start in range(0, len(ids_E), NONZEROS)]
    return _total([_product(_mixed(ids_E[part]), _bits(attr_EF[part], dtype)) for part in parts])


def _of_entries(ids_n: np.ndarray, A: sp.csr_array, mixed: Callable[[np.ndarray], np.ndarray]) -> np.uint64:
    """Return the sum of _of_edges over one matrix; mixed: columns -> mix(mix(column)).

    Weights are compared in float32, as folders of parts hold them.
    """
    total, is_weighted = np.uint64(0), any(A.data.strides)
    for start in range(0, A.nnz, NONZEROS):
        part = slice(start, min(start + NONZEROS, A.nnz))
        first, last = np.searchsorted(A.indptr, (part.start, part.stop - 1), side="right") - 1
        lengths = np.diff(np.clip(A.indptr[first : last + 2], part.start, part.stop))
        terms = np.repeat(ids_n[first : last + 1], lengths) * mixed(A.indices[part])
        weights = A.data[part if is_weighted else slice(0, 1)].astype(np.float32)
        terms *= _mixed(weights.view(np.uint32))
        total = np.add(total, terms.sum(dtype=np.uint64), dtype=np.uint64)
    return total


def _total(terms: list[np.uint64]) -> np.uint64:
    """Return the sum modulo 2^64."""
    return np.array(terms, np.uint64).sum(dtype=np.uint64)


def _bits(values: torch.Tensor | np.ndarray, dtype: torch.dtype | None) -> np.ndarray:
    """Return the bits of floating-point numbers, rounded to a type, as integers."""
    values = values.detach().cpu() if torch.is_tensor(values) else torch.from_numpy(np.array(values))
    values, kinds = values.to(dtype or values.dtype), {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(kinds[values.element_size()]).numpy().astype(np.int64).view(np.uint64)


def _product(ids_n: np.ndarray, values_nF: np.ndarray) -> np.uint64:
    """Return the sum over rows of ids[i] times the sum over columns of mix(j) values[i, j], modulo 2^64."""
    columns_F = _mixed(np.arange(values_nF.shape[1]))
    return ((values_nF.astype(np.uint64) * columns_F).sum(axis=1, dtype=np.uint64) * ids_n).sum(dtype=np.uint64)


def _mixed(ids: np.ndarray) -> np.ndarray:
    """Return 64 mixed bits of each integer (Steele et al. 2014, SplitMix64)."""
    z = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
