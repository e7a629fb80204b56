"""The options of distribute are the fields of Distribution: checked in one place, the same on all ranks."""

from dataclasses import fields

import pytest
import torch
from worlds import parallel

from spgnn import distribute, load_graph
from spgnn.config import Distribution
from spgnn.dist import SelfCommunicator
from spgnn.errors import RankError, UsageError

GRAPH = load_graph("sbm:n=40,classes=3,features=4")


def test_the_docstring_of_distribute_names_every_option():
    assert not [f.name for f in fields(Distribution) if f.name not in distribute.__doc__]


@pytest.mark.parametrize("options, said", [
    ({"shceme": "cover"}, "distribute: unknown key 'shceme'; did you mean 'scheme'"),
    ({"scheme": "covr"}, "distribute: scheme = 'covr' is not known; did you mean 'cover'"),
    ({"replication": 0}, "distribute: replication = 0; expected at least 1"),
    ({"dtype": torch.float16}, "distribute: dtype = 'float16' is not known"),
    ({"threads": 1.5}, "distribute: threads = 1.5 is float; expected int"),
    ({"keep": 1}, "distribute: keep = 1 is int; expected bool"), ({"order": "gemm_first"}, "order = 'gemm_first'"),
    ({"threads": 10**6}, "threads = 1000000; expected"), ({"replication": "1"}, "replication = '1'"),
    ({"method": "mets"}, "partitioner 'mets' is not known; did you mean 'metis'"),
])  # fmt: skip
def test_a_wrong_option_is_refused_with_what_is_valid(options, said):
    with pytest.raises(UsageError) as error:
        distribute(GRAPH, SelfCommunicator(), **options)
    assert said in str(error.value)


@parallel([3], mpi=[])
def test_an_option_that_is_wrong_on_one_rank_stops_all(comm):
    with pytest.raises(UsageError if comm.rank == 1 else RankError, match="unknown key 'sede'"):
        distribute(GRAPH, comm, **({"sede": 1} if comm.rank == 1 else {}))


@pytest.mark.parametrize("source, said", [(3, "got a int"), (lambda: 3, "a function that returns a int")])
def test_what_is_no_graph_is_refused(source, said):
    with pytest.raises(UsageError, match=said):
        distribute(source, SelfCommunicator())
