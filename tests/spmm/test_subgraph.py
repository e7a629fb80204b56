"""A subgraph's operators are made of its arrays as they are, and keep nothing alive."""

import gc
import weakref

import numpy as np
import scipy.sparse as sp
import torch
from dense_model import relative
from graphs import random_graph
from subgraphs import blocks, induced, operator_of, subgraph_of

from spgnn.samplers import NormedBlock
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.operator.features import SparseRows
from spgnn.spmm.operator.subgraph import SubgraphOperators, SubgraphSpMM


def test_a_trusted_block_is_the_checked_one_over_the_same_arrays():
    rng = np.random.default_rng(0)
    D = rng.standard_normal((30, 40)) * (rng.random((30, 40)) < 0.3)
    made = operator_of(D)
    T = LocalCSR.trusted((40, 30), *vars_of(made.transposed), torch.float64)
    A = LocalCSR.trusted((30, 40), *vars_of(made.A), torch.float64, 1, lambda: (T, made.order_e))
    assert A.indptr is made.A.indptr and A.indices is made.A.indices and A.weights is made.A.values
    assert A.transposed() is T and A.transposed_places() is made.order_e
    checked = LocalCSR(sp.csr_array(D), torch.float64, 1)
    X, G = (torch.from_numpy(rng.standard_normal((rows, 7))) for rows in (40, 30))
    for of in (A, LocalCSR.trusted((30, 40), *vars_of(made.A), torch.float64)):  # and with a transpose that it makes
        assert torch.equal(of.apply(X, torch.empty(30, 7).double()), checked.apply(X, torch.empty(30, 7).double()))
        assert torch.equal(of.adjoint(G, torch.empty(40, 7).double()), checked.adjoint(G, torch.empty(40, 7).double()))
        assert (of.transposed_places() == checked.transposed_places()).all()
    assert {*vars(A)} == {*vars(checked)}


def vars_of(csr):
    return csr.indptr, csr.indices, csr.values


def test_nothing_of_a_step_stays_when_the_operators_die():
    graph = random_graph()
    subgraph, pool = subgraph_of(graph, *induced(graph)), BufferPool()
    A = SubgraphOperators(subgraph, pool, torch.float64)
    H = torch.ones(25, 6, dtype=torch.float64, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        (A.at(1) @ H).sum().backward()
        seen = [weakref.ref(A), weakref.ref(A.A), weakref.ref(A.A.transposed())]
        del A
        assert [ref() for ref in seen] == [None] * 3, "without the garbage collector"
    finally:
        gc.enable()


def test_a_transpose_is_made_when_a_gradient_needs_it():
    graph, made = random_graph(), []
    subgraph = subgraph_of(graph, *induced(graph))
    for how, operator in subgraph.blocks[0].items():
        subgraph.blocks[0][how] = NormedBlock(operator.A, lambda of=operator: made.append(1) or of.flip())
    A = SubgraphOperators(subgraph, BufferPool(), torch.float64)
    X, W = (torch.ones(shape, dtype=torch.float64) for shape in ((25, 6), (6, 8)))
    A.at(1).chain(X, W.requires_grad_()).sum().backward()  # A X W: the gradient of W is (A X)' G
    assert not made
    (A.at(1) @ X.requires_grad_()).sum().backward()
    assert made and relative(X.grad.numpy(), A.A.to_scipy().toarray().T @ np.ones((25, 6))) < 1e-12


def test_rows_of_a_block_have_their_original_ids():
    graph = random_graph()
    node_m, matrices = blocks(graph, 2)
    A = SubgraphOperators(subgraph_of(graph, node_m, matrices), BufferPool(), torch.float64)
    first, second = A.at(1), A.at(2, is_last=True)
    assert (first.node_n == node_m).all() and (first.out_ids == second.node_n).all()
    assert (second.out_ids == node_m[:7]).all() and (A.n_out, second.n, first.m) == (7, 7, len(node_m))
    for block, how in ((first, "gcn"), (second, "row")):
        D = matrices[block is second][how]
        S = SparseRows(sp.csr_array(np.eye(block.m)), A.pool, torch.float64)
        of = block.operator.with_norm(how)
        assert relative(of.apply(S).csr.to_scipy().toarray(), D) == 0
        assert isinstance(of, SubgraphSpMM) and of.stays_sparse(S) in (True, False)
        assert (block.select(S).csr.to_scipy().toarray() == np.eye(block.m)[: block.n]).all()


def test_rows_that_are_fetched_may_be_written_to():
    graph = random_graph()
    A = SubgraphOperators(subgraph_of(graph, *induced(graph)), BufferPool(), torch.float64)
    H = torch.ones(25, 6, dtype=torch.float64)
    A.fetch(H).tensor.zero_()
    assert (H == 1).all()


def test_of_equal_entries_the_one_of_the_smallest_original_id_has_the_gradient():
    graph = random_graph()
    node_m, matrices = induced(graph)
    A = SubgraphOperators(subgraph_of(graph, node_m, matrices), BufferPool(), torch.float64, operator="loops")
    H = torch.ones(25, 1, dtype=torch.float64, requires_grad=True)
    A.maximum(H).sum().backward()
    expected = np.zeros(25)
    for row in matrices[0]["loops"]:
        read = np.flatnonzero(row)
        expected[read[np.argmin(node_m[read])]] += 1
    assert (H.grad[:, 0].numpy() == expected).all()
