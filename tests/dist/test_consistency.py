"""check_same: every difference is named with the ranks that differ, on all ranks at once."""

import numpy as np
import pytest
from worlds import parallel

from spgnn import errors
from spgnn.dist.consistency import check_counts, check_same, digest, versions
from spgnn.errors import PartitionError, RankError, UsageError

SAME = {"option.lr": 0.01, "option.hidden": [16, 7], "graph.A": "ab12"}


@parallel([1, 2, 5], mpi=[2])
def test_equal_facts_pass(comm):
    check_same(comm, SAME | {"option.out": ""} | versions())
    assert comm.traffic.sent_bytes().sum() == 0


@parallel([2, 4], mpi=[3])
@pytest.mark.parametrize(
    "name, error, fix",
    [("option.lr", "UsageError", "options"), ("version.torch", "LaunchError", "environment"),
     ("graph.X", "GraphError", "files"), ("partition.owner", "PartitionError", "one partition|same partition")],
)  # fmt: skip
def test_a_difference_is_named_on_all_ranks(comm, name, error, fix):
    odd = comm.size - 1
    with pytest.raises(
        getattr(errors, error), match=rf'{name} is "usual" on rank.* and "odd" on rank {odd}\..*({fix})'
    ) as caught:
        check_same(comm, SAME | {name: "odd" if comm.rank == odd else "usual"})
    assert "lr is" not in str(caught.value) or name == "option.lr"
    comm.barrier()  # all ranks are at the same place


@parallel([4], mpi=[])
def test_the_value_that_most_ranks_have_comes_first_and_all_differences_are_told(comm):
    told = (
        "option.lr is 0.01 on ranks 0, 1, 3 and 0.1 on rank 2; option.seed is 0 on ranks 0, 2, 3 and missing on rank 1"
    )
    facts = {"option.lr": 0.1 if comm.rank == 2 else 0.01} | ({} if comm.rank == 1 else {"option.seed": 0})
    with pytest.raises(UsageError, match=told):
        check_same(comm, facts)


@parallel([3], mpi=[])
def test_a_rank_that_cannot_say_agrees_with_all(comm):
    check_same(comm, SAME | {"partition.owner": "ab" if comm.rank == 0 else None})
    with pytest.raises(PartitionError, match='"ab" on rank 0 and "cd" on rank 2'):
        check_same(comm, {"partition.owner": ["ab", None, "cd"][comm.rank]})


@parallel([3], mpi=[2])
def test_counts_that_do_not_fit_are_named(comm):
    P = comm.size
    check_counts(comm, np.full(P, 3), np.full(P, 3), "rows of layer 1")
    send_P = np.full(P, 3)
    if comm.rank == 1:
        send_P[0] = 4
    expected = PartitionError if comm.rank == 0 else RankError
    with pytest.raises(expected, match="rows of layer 1: rank 1 sends 4 rows to rank 0, which expects 3"):
        check_counts(comm, send_P, np.full(P, 3), "rows of layer 1")


def test_a_digest_sees_type_shape_and_every_byte():
    x = np.arange(6, dtype=np.float32)
    y = x.copy()
    y[5] = np.nextafter(y[5], 9)
    assert digest(x) == digest(x.copy())
    assert len({digest(a) for a in (x, y, x.astype(np.float64), x.reshape(2, 3), None)}) == 5
    assert digest(x, None) != digest(None, x)
