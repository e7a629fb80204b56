"""fingerprint: one string for one graph, whatever the types, formats and blocks of its arrays; another for another."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph

from spgnn.graph import fingerprint
from spgnn.graph.digest import RowsDigest, edges_digest, table_digest


@pytest.mark.parametrize("sparse", [False, True])
def test_a_digest_does_not_depend_on_blocks_and_types(sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 70)).astype(np.float32) * (rng.random((3000, 70)) < 0.5)
    X, other = (
        (sp.csr_array(X), sp.csr_array(X.astype(np.float64))) if sparse else (X, np.asfortranarray(X, np.float64))
    )
    whole, pieces = table_digest(X), RowsDigest()
    for start in range(0, 3000, 911):
        pieces.add(X[start : start + 911])
    assert pieces.hexdigest() == whole == table_digest(other)


@pytest.mark.parametrize("change", [lambda v: v[::-1], lambda v: v[:-1], lambda v: np.where(v == 1, 2, v)], ids="abc")
def test_a_digest_sees_order_length_and_small_changes_of_round_numbers(change):
    values = np.repeat([1.0, 2.0], 1 << 16)
    values[[3, 70_000]] = 4.0, 1.0
    assert table_digest(change(values)) != table_digest(values) != table_digest(values.astype(np.int64))


def test_every_pair_of_ones_among_zeros_has_a_digest_of_its_own():
    """Were the exponents of floats in the high bits of their words, sums would differ in 12 bits alone."""
    pairs, zeros = np.stack(np.triu_indices(120, 1), axis=1), np.zeros(120)
    found = set()
    for pair in pairs:
        zeros[pair] = 1.0
        found.add(table_digest(zeros))
        zeros[pair] = 0.0
    assert len(found) == len(pairs)


def test_digests_of_the_edges_of_parts_add_up():
    rng = np.random.default_rng(2)
    ids, attr = rng.permutation(100_000) - 50_000, rng.standard_normal((100_000, 3)).astype(np.float32)
    order = rng.permutation(100_000)
    first, second = order[:30_000], order[30_000:]
    total = sum(edges_digest(ids[part], attr[part]) for part in (first, second)) % 2**64
    assert total == edges_digest(ids, attr) != edges_digest(ids, attr[order])


def test_a_fingerprint_names_what_differs():
    graph = random_graph(n=40, edges=160, seed=3, weighted=True)
    nnz, edges, values = fingerprint(graph).split("-")
    assert int(nnz) == graph.nnz
    for name in ("X", "y"):
        changed = np.array(getattr(graph, name))
        changed[7] = (changed[7] + 1) % 3
        of = fingerprint(replace(graph, **{name: changed}))
        assert of.startswith(f"{nnz}-{edges}-") and not of.endswith(values)
    A = graph.A.copy()
    A.data = A.data * np.where(np.arange(graph.nnz) == 5, 2, 1)
    of = fingerprint(replace(graph, A=A))
    assert of.endswith(values) and edges not in of
