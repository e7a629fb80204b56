"""Properties of index map and plan over random graphs, owners and numbers of ranks."""

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spgnn.dist import run_threads
from spgnn.spmm.exchange.exchange_plan import ExchangePlan
from spgnn.spmm.exchange.index_map import columns_map, find
from spgnn.spmm.kernels.buffers import BufferPool


@st.composite
def worlds(draw):
    """(A, owner_N, P): any directed pattern, any owners, empty ranks included."""
    n, P = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40, unique=True))
    owner_N = np.array(draw(st.lists(st.integers(0, P - 1), min_size=n, max_size=n)))
    rows, columns = np.array(edges, np.int64).reshape(-1, 2).T
    data = np.arange(1.0, len(edges) + 1)
    return sp.csr_array(sp.coo_array((data, (rows, columns)), shape=(n, n))), owner_N, P


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_pull_fetches_every_ghost_and_push_add_returns_every_copy(world):
    A, owner_N, P = world

    def body(comm):
        own_n = np.flatnonzero(owner_N == comm.rank)
        index = columns_map(own_n, sp.csr_array(A[own_n]), lambda ids: owner_N[ids], comm.rank, comm.size)
        plan = ExchangePlan(comm, index, BufferPool())
        ids = torch.from_numpy(own_n[:, None].astype(np.float64))
        np.testing.assert_array_equal(plan.pull(ids).numpy().ravel(), index.ghost_g)
        back = plan.push_add(torch.ones(plan.g, 1, dtype=torch.float64), torch.zeros(plan.n, 1, dtype=torch.float64))
        return own_n, back.numpy().ravel(), index.ghost_g

    results = run_threads(P, body)
    readers = np.zeros(A.shape[0])
    for _, _, ghosts in results:
        readers[ghosts] += 1
    for own_n, back, _ in results:
        np.testing.assert_array_equal(back, readers[own_n])


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30)))
def test_find_returns_positions_or_minus_one(values, ids):
    ascending = np.array(sorted(values), np.int64)
    expected = [values and (sorted(values).index(i) if i in values else -1) if values else -1 for i in ids]
    np.testing.assert_array_equal(find(ascending, np.array(ids, np.int64)), expected)
