"""The pool hands memory out again only when nothing uses it any more."""

import gc

import torch

from spgnn.spmm.kernels.buffers import PAGE, BufferPool


def test_a_block_comes_back_when_its_tensor_dies_and_is_used_again():
    pool = BufferPool()
    first = pool.empty(100, 1000)
    address = first.data_ptr()
    del first
    gc.collect()
    assert pool.empty(100, 1000).data_ptr() == address
    assert pool.held_bytes == -(-400_000 // PAGE) * PAGE


def test_a_view_keeps_the_block():
    pool = BufferPool()
    view = pool.empty(100, 1000)[5:10]
    gc.collect()
    assert pool.empty(100, 1000).data_ptr() != view.data_ptr() - 5 * 4000


def test_a_tensor_saved_for_backward_keeps_its_block():
    pool = BufferPool()
    x = torch.ones(100, 1000, requires_grad=True)
    held = pool.empty(100, 1000).fill_(3.0)
    y = x * held
    del held
    gc.collect()
    pool.empty(100, 1000).fill_(7.0)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((100, 1000), 3.0))


def test_large_tensors_are_page_aligned_and_small_ones_are_torchs():
    pool = BufferPool()
    assert pool.empty(100, 1000, dtype=torch.float64).data_ptr() % PAGE == 0
    assert pool.empty(2, 2).shape == (2, 2) and pool.held_bytes == 800_000 // PAGE * PAGE + PAGE
    pool.trim()


def test_trim_gives_free_blocks_back():
    pool = BufferPool()
    kept, freed = pool.empty(100, 1000), pool.empty(100, 1000)
    del freed
    gc.collect()
    pool.trim()
    assert pool.held_bytes == -(-400_000 // PAGE) * PAGE and kept.shape == (100, 1000)
