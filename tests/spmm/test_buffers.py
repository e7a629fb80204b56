"""The pool hands memory out again only when nothing uses it any more."""

import gc
import random

import torch

from spgnn.spmm.kernels.buffers import (
    CLASSES,
    MOST_HELD,
    PAGE,
    SMALL,
    BufferPool,
    FreeBlocks,
    block_bytes,
    class_bytes,
)


def test_a_block_comes_back_when_its_tensor_dies_and_is_used_again():
    pool = BufferPool()
    first = pool.empty(100, 1000)
    address = first.data_ptr()
    del first
    gc.collect()
    assert pool.empty(100, 1000).data_ptr() == address
    assert pool.held_bytes == -(-400_000 // PAGE) * PAGE


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


def test_a_block_of_more_than_twice_a_request_is_left_for_larger_ones():
    pool = BufferPool()
    large = pool.empty(2100, 1000)
    address = large.data_ptr()
    del large
    small = pool.empty(1000, 1000)
    assert small.data_ptr() != address and pool.empty(2100, 1000).data_ptr() == address


def test_a_new_block_takes_the_place_of_smaller_free_ones_smallest_first():
    pool = BufferPool()
    sizes = [pool.empty(rows, 1024) for rows in (100, 300, 400, 900)]
    del sizes
    pool.empty(1000, 1024)
    assert pool.held_bytes == 1000 * 4096, "all of them are not enough"
    tensors = [pool.empty(rows, 1024) for rows in (100, 300, 400, 900)]  # 1000 serves 900
    del tensors
    pool.empty(2500, 1024)
    assert pool.held_bytes == 2500 * 4096
    tensors = [pool.empty(rows, 1024) for rows in (100, 300, 400)]
    del tensors
    kept = pool.empty(2500, 1024), pool.empty(350, 1024)
    assert pool.held_bytes == 3300 * 4096 and len(kept) == 2, "400 served 350"


def test_requests_that_repeat_soon_map_nothing():
    draw = random.Random(0)
    for _ in range(20):
        free, mapped, requests = FreeBlocks(), [], [(draw.randint(1, 40), draw.random()) for _ in range(60)]
        for _ in range(10):
            held, count = [], 0
            for size, share in requests:
                found = free.take(size)
                if found is None:
                    free.make_room(size)
                    count += 1
                held.append(found[0] if found else size)
                while len(held) > 1 + 12 * share:
                    free.put(held.pop(0), None)
            for size in held:
                free.put(size, None)
            mapped.append(count)
        assert mapped[0] > 0 and mapped[-1] == mapped[-2] == 0, mapped


def test_classes_hold_what_is_asked_for_and_waste_at_most_an_eighth():
    draw = random.Random(0)
    for n_bytes in [SMALL, SMALL + 1, PAGE << 4, *(draw.randint(SMALL, 1 << 34) for _ in range(2000))]:
        size = class_bytes(n_bytes)
        assert n_bytes <= size <= max(n_bytes * (1 + 1 / CLASSES), n_bytes + PAGE) and size % PAGE == 0
        assert class_bytes(size) == size, "a class is its own"
    assert class_bytes(SMALL - 1) == block_bytes(SMALL - 1) == 0
    assert len({class_bytes(n) for n in range(1 << 20, 1 << 21, 512)}) == CLASSES + 1


def steps_of(pool, steps, spread, seed=0):
    """What is held after each step of two layers on a subgraph whose size changes."""
    draw, held = random.Random(seed), []
    for _ in range(steps):
        m, n = (int(rows * (1 + spread * (2 * draw.random() - 1))) for rows in (2400, 500))
        live = []
        for rows, width in ((m, 128), (m, 128), (n, 256), (n, 256), (60, 256), (n, 256), (m, 64), (n, 256)):
            live.append(pool.empty(rows, width))
            del live[:-4]
        del live
        held.append(pool.held_bytes)
    return held


def test_what_a_pool_holds_stays_flat_where_sizes_change_with_every_step():
    for spread in (0.02, 0.1, 0.5):
        pool = BufferPool(varies=True)
        held = steps_of(pool, 600, spread)
        assert max(held[300:]) <= max(held[:300]) and max(held) <= MOST_HELD * pool.most_used
        assert pool.most_used < 4 * 2400 * 1.6 * 128 * 4


def test_more_than_a_bound_goes_back_where_sizes_change():
    for varies in (True, False):
        pool = BufferPool(varies)
        for count in (1, 3, 9, 27, 81):  # as many bytes, in blocks too small for what came before
            live = [pool.empty(8100 // count, 1024) for _ in range(count)]
            del live
            if varies:
                assert pool.held_bytes <= MOST_HELD * pool.most_used
        assert varies == (pool.held_bytes < 4 * pool.most_used)
        pool.trim()
        assert pool.held_bytes == 0 == pool.used_bytes
