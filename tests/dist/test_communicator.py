"""What every backend does, as one body on thread ranks and on MPI ranks; the buffers that MPI holds."""

import gc
import time
import weakref

import numpy as np
import pytest
from worlds import parallel

from spgnn.errors import CollectiveError, InputError, RankError, ShapeError, UsageError, agree

ALL = [1, 2, 3, 4, 16]
SOME = [2, 3]
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float32", "float64"]
SHAPES = [(), (1,), (3,), (2, 3), (0,)]


def rows_between(rank, q, seed=0):
    """Rows that rank sends to q, itself too: some zero, others by direction."""
    return (3 * rank + 6 * q + seed) % 4


def rows_of(rank, q, n, shape, dtype):
    base = np.arange(n * int(np.prod(shape)), dtype=np.float64).reshape(n, *shape)
    return (base + 100 * rank + q).astype(dtype)


def exchange(comm, shape, dtype, seed=0, start=False, rows=rows_between):
    """Exchange rows that name their sender and receiver; assert that the right ones came."""
    P, r = comm.size, comm.rank
    send_rows, recv_rows = [rows(r, q, seed) for q in range(P)], [rows(q, r, seed) for q in range(P)]
    send = np.concatenate([rows_of(r, q, send_rows[q], shape, dtype) for q in range(P)])
    expected = np.concatenate([rows_of(q, r, recv_rows[q], shape, dtype) for q in range(P)])
    recv = np.zeros_like(expected)
    if start:
        request = comm.start_all_to_all(send, send_rows, recv, recv_rows)
        while not request.test():
            time.sleep(1e-4)  # on one core the others could not go on
        request.wait()
    else:
        assert comm.all_to_all(send, send_rows, recv, recv_rows) is recv
    np.testing.assert_array_equal(recv, expected)
    return send_rows, send


@parallel(ALL, torch=[4])
def test_all_to_all_delivers_each_row_in_rank_order(comm):
    for dtype in DTYPES:
        for seed, shape in enumerate(SHAPES):
            exchange(comm, shape, dtype, seed, start=seed % 2 == 1)


@parallel(SOME, torch=[4])
@pytest.mark.parametrize("max_bytes", [7, 64, 300])
def test_messages_above_the_limit_travel_in_pieces(comm, max_bytes):
    whole, comm.max_bytes = getattr(comm, "max_bytes", None), max_bytes
    try:
        for dtype, shape in (("float64", (5,)), ("int8", ()), ("float32", (2, 3)), ("float32", (40,))):
            if np.dtype(dtype).itemsize <= max_bytes:
                many = lambda rank, q, seed: 13 * rows_between(rank, q, seed)
                exchange(comm, shape, dtype, 1, start=True, rows=many)
                exchange(comm, shape, dtype, 2, rows=many)
        x = np.arange(501.0) + comm.rank
        comm.all_reduce(x)
        np.testing.assert_array_equal(x, comm.size * np.arange(501.0) + sum(range(comm.size)))
        rows = comm.all_gather(np.full((10 * comm.rank, 3), comm.rank, np.int32))
        np.testing.assert_array_equal(rows[:, 1], np.repeat(np.arange(comm.size), 10 * np.arange(comm.size)))
        x = np.arange(300) * (comm.rank == 1)
        comm.broadcast(x, root=1)
        np.testing.assert_array_equal(x, np.arange(300))
    finally:
        comm.max_bytes = whole


@parallel([2, 3, 4], torch=[4])
@pytest.mark.parametrize("start", [False, True])
def test_a_rank_may_send_or_receive_an_empty_view_of_its_other_buffer(comm, start):
    n, is_root = 1000, comm.rank == 0  # 8,000 bytes: more than Open MPI sends before the receiver has come
    others = [0, *[n] * (comm.size - 1)] if is_root else [n, *[0] * (comm.size - 1)]
    rows, nothing = np.zeros(sum(others)), [0] * comm.size
    for value, sends in ((1, is_root), (2, not is_root)):  # from rank 0 to the others, and back
        rows[:] = value if sends else 0
        some, none = (rows, others), (rows[:0], nothing)
        call = [*some, *none] if sends else [*none, *some]
        comm.start_all_to_all(*call).wait() if start else comm.all_to_all(*call)
        assert (rows == value).all()


@parallel(SOME, torch=[4])
def test_started_exchanges_end_in_any_order_of_waiting(comm):
    P, rounds = comm.size, 5
    sends = [np.full((P, 4), 10.0 * i + comm.rank) for i in range(rounds)]
    recvs = [np.zeros((P, 4)) for _ in range(rounds)]
    requests = [comm.start_all_to_all(s, [1] * P, r, [1] * P) for s, r in zip(sends, recvs)]
    for i in range(20):  # collectives that wait overtake those that were started
        assert comm.all_reduce(np.full(i + 1, comm.rank)).tolist() == [sum(range(P))] * (i + 1)
    for i in (3, 0, 4, 1, 2):
        requests[i].wait()
        np.testing.assert_array_equal(recvs[i][:, 0], 10.0 * i + np.arange(P))
        requests[i].wait()
        assert requests[i].test()


@parallel(ALL, torch=[4])
def test_all_reduce_is_the_sum_maximum_and_minimum_on_every_rank(comm):
    P, r = comm.size, comm.rank
    for dtype in DTYPES[1:]:
        for op, expected in (("sum", sum(range(P))), ("max", P - 1), ("min", 0)):
            x = np.full((2, 3), r, dtype)
            assert comm.all_reduce(x, op) is x
            np.testing.assert_array_equal(x, np.full((2, 3), expected, dtype))
    flags = np.array([r == 0, True, False])
    assert comm.all_reduce(flags.copy(), "max").tolist() == [True, True, False]
    assert comm.all_reduce(flags.copy(), "min").tolist() == [P == 1, True, False]
    scalar = np.array(1.0)
    assert comm.all_reduce(scalar) == P
    assert comm.all_reduce(np.empty(0)).shape == (0,)


@parallel(ALL, torch=[4])
def test_gathers_and_broadcast_bring_every_ranks_value(comm):
    P, r = comm.size, comm.rank
    rows = comm.all_gather(np.full((r % 3, 2), r, np.float32))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:, 0], np.repeat(np.arange(P), np.arange(P) % 3))
    assert comm.all_gather(np.empty((0, 2))).shape == (0, 2)
    assert comm.all_gather_json({"r": r, "é": [None, 1.5] * r}) == [{"r": q, "é": [None, 1.5] * q} for q in range(P)]
    x = np.full((3, 2), r, np.int8)
    assert comm.broadcast(x, root=P - 1) is x
    assert (x == P - 1).all()
    comm.barrier()


@parallel([3, 4, 7], mpi=[4], torch=[4])
def test_split_makes_communicators_of_equal_color(comm):
    P, r = comm.size, comm.rank
    part = comm.split(r % 2, key=-r)
    members = sorted((q for q in range(P) if q % 2 == r % 2), reverse=True)
    assert (part.rank, part.size) == (members.index(r), len(members))
    assert part.all_gather(np.array([r])).tolist() == members
    assert comm.all_reduce(np.array([1])) == P
    inner = part.split(part.rank)
    assert inner.size == 1 and inner.all_reduce(np.array([3.0])) == 3.0
    part.phase = "inside the part"
    assert comm.phase == "inside the part" or comm.size > part.size


@parallel([4], mpi=[2], torch=[4])
def test_splits_that_are_used_no_more_are_freed(comm):
    kept = comm.split(comm.rank % 2)
    deepest = comm.split(comm.rank // 2).split(0)
    getattr(comm.split(0), "close", list)()  # freed once; threads have nothing to free
    for _ in range(1100):  # MPI has 2,048 communicators, and each takes two
        part = comm.split(int(comm.rank > 0))
    for part, ranks in (
        (kept, list(range(comm.rank % 2, comm.size, 2))),
        (deepest, [comm.rank // 2 * 2, comm.rank // 2 * 2 + 1]),
    ):
        assert part.all_gather(np.array([comm.rank])).tolist() == ranks


@parallel(ALL, torch=[4])
def test_traffic_counts_the_bytes_to_each_peer(comm):
    P, r = comm.size, comm.rank
    comm.traffic.reset()
    send_rows = np.array([rows_between(r, q) for q in range(P)])
    others = np.where(np.arange(P) == r, 0, send_rows)
    with comm.traffic.label("layer 2 forward"):
        exchange(comm, (3,), "float32")
    exchange(comm, (), "int64", start=True)
    assert comm.traffic.sent_bytes(label="layer 2 forward").tolist() == (12 * others).tolist()
    assert comm.traffic.sent_bytes("all_to_all").tolist() == ((12 + 8) * others).tolist()
    comm.all_reduce(np.zeros(5))
    comm.broadcast(np.zeros(2, np.float32))
    assert comm.traffic.collective_bytes("all_reduce") == 40
    assert comm.traffic.collective_bytes() == 48
    assert comm.traffic.sent_bytes("all_reduce").sum() == 0


@parallel([4], mpi=[4], torch=[4])
def test_traffic_of_a_split_counts_under_the_parents_ranks_and_label(comm):
    part = comm.split(comm.rank // 2)
    comm.traffic.reset()
    with comm.traffic.label("column"):
        part.all_to_all(np.zeros(2, np.int8), [1, 1], np.zeros(2, np.int8), [1, 1])
    assert part.traffic.sent_bytes(label="column")[1 - part.rank] == 1
    sent = comm.traffic.sent_bytes("all_to_all", "column")
    assert np.flatnonzero(sent).tolist() == [comm.rank ^ 1] and sent.sum() == 1


@parallel(SOME, mpi=[3], torch=[4])
def test_ranks_that_call_different_things_are_told_so(comm):
    last = comm.rank == comm.size - 1
    cases = [
        ("float32", lambda: comm.all_reduce(np.ones(2, np.float32 if last else np.float64))),
        ("op max", lambda: comm.all_reduce(np.ones(2), "max" if last else "sum")),
        ("shape 3", lambda: comm.all_reduce(np.ones(3 if last else 2))),
        ("root 1", lambda: comm.broadcast(np.ones(2), root=1 if last else 0)),
        ("barrier", lambda: comm.barrier() if last else comm.all_gather(np.ones(2))),
        ("shape 5", lambda: comm.all_gather(np.ones((2, 5 if last else 4)))),
    ]
    for text, call in cases:
        with pytest.raises(CollectiveError, match=text) as caught:
            call()
        assert f"rank {comm.rank} calls" in str(caught.value)
        if comm.size > 1 and hasattr(comm, "_group"):
            return  # thread ranks end at the first error, see test_thread
    comm.barrier()


@parallel([1, 3], mpi=[3], torch=[4])
def test_buffers_that_cannot_travel_are_refused_before_anything_is_sent(comm):
    P = comm.size
    full = lambda: np.zeros((P, 2))
    ones = [1] * P
    cases = [
        ("not C-contiguous", lambda: comm.all_reduce(np.zeros((3, 4))[:, ::2])),
        ("expected one of: bool", lambda: comm.all_reduce(np.zeros(3, np.complex128))),
        ("expected a numpy array", lambda: comm.all_reduce([1.0])),
        ("sum of bool", lambda: comm.all_reduce(np.zeros(3, bool))),
        ("all_reduce of float16", lambda: comm.all_reduce(np.zeros(3, np.float16))),
        ("a scalar", lambda: comm.all_gather(np.array(1.0))),
        ("add up", lambda: comm.all_to_all(full(), [2] * P, full(), ones)),
        ("none negative", lambda: comm.all_to_all(full(), [-1] * P, full(), ones)),
        ("counts", lambda: comm.all_to_all(full(), [1] * (P + 1), full(), ones)),
        ("recv float32", lambda: comm.all_to_all(full(), ones, full().astype("float32"), ones)),
        ("of shape", lambda: comm.all_to_all(full(), ones, np.zeros((P, 3)), ones)),
    ]
    for text, call in cases:
        with pytest.raises(ShapeError, match=text) as caught:
            call()
        assert f"rank {comm.rank}" in str(caught.value)
    same = full()
    with pytest.raises(ShapeError, match="share memory"):
        comm.all_to_all(same, ones, same, ones)
    frozen = full()
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        comm.all_to_all(full(), ones, frozen, ones)
    with pytest.raises(UsageError, match="did you mean"):
        comm.all_reduce(np.zeros(3), "summ")
    with pytest.raises(UsageError, match="root"):
        comm.broadcast(np.zeros(3), root=P)
    comm.barrier()


@parallel([1, 2, 3], mpi=[3], torch=[4])
def test_agree_raises_on_all_ranks_or_on_none(comm):
    agree(comm, None)
    last = comm.size - 1
    mine = InputError("graph.txt:7: node -3 is negative") if comm.rank == last else None
    with pytest.raises(InputError if comm.rank == last else RankError) as caught:
        agree(comm, mine)
    assert "graph.txt:7: node -3 is negative" in str(caught.value)
    assert caught.value.exit_code == 3
    if comm.rank != last:
        assert f"rank {last} failed" in str(caught.value)
    comm.barrier()


@parallel([], mpi=[2, 3], torch=[4])
def test_a_started_exchange_travels_while_the_rank_computes(comm):
    n = 300_000  # above what MPI sends before the receiver has come
    send = np.full((comm.size * n,), comm.rank + 1.0)
    recv = np.zeros_like(send)
    request = comm.start_all_to_all(send, [n] * comm.size, recv, [n] * comm.size)
    end = time.monotonic() + 20
    while not recv[n - 1 :: n].all() and time.monotonic() < end:
        time.sleep(0.01)  # no call of the communicator
    assert recv[n - 1 :: n].tolist() == [q + 1.0 for q in range(comm.size)]
    request.wait()


@parallel([], mpi=[3], torch=[4])
def test_watchdogs_send_each_other_messages_next_to_collectives(comm):
    channel, arrived, end = comm.open_channel(), [], time.monotonic() + 20
    request = comm.start_all_to_all(np.ones(comm.size), [1] * comm.size, np.ones(comm.size), [1] * comm.size)
    for text in (b"report", b"ask"):
        channel.send((comm.rank + 1) % comm.size, b"%s of %d" % (text, comm.rank))
    while len(arrived) < 2 and time.monotonic() < end:
        arrived += channel.receive()
        time.sleep(1e-3)
    before = (comm.rank - 1) % comm.size
    assert sorted(arrived) == [b"ask of %d" % before, b"report of %d" % before]
    request.wait()
    comm.barrier()
    channel.close()


@parallel([], mpi=[3])
def test_a_started_collective_that_differs_is_held_with_its_buffers(comm):
    rows = lambda: np.ones(comm.size, np.float32 if comm.rank == 1 else np.float64)
    request = comm.start_all_to_all(rows(), [1] * comm.size, rows(), [1] * comm.size)
    with pytest.raises(CollectiveError, match="float32"):
        request.wait()
    held = weakref.ref(request)
    del request
    gc.collect()
    assert held() is not None  # MPI may still write to its buffer
    comm.barrier()
