"""Small graphs whose links, splits and ranks are worked out by hand."""

import numpy as np
import pytest
import torch
from command_line import run
from worlds import parallel

import spgnn
from spgnn.graph.links import ROLES, TEST, TRAIN, VAL
from spgnn.layers import MLP, Stack
from spgnn.layers.decoders import Dot
from spgnn.links import Candidates
from spgnn.links.scored_pairs import negatives_of
from spgnn.training.link_scorer import ALL, LinkScorer


def pairs_of(graph, *roles):
    """The pairs of a split graph, without direction."""
    of = graph.links.of(*roles)
    return [tuple(sorted(pair)) for pair in zip(graph.links.source_T[of].tolist(), graph.links.target_T[of].tolist())]


def edges_of(graph):
    return set(zip(*(end.tolist() for end in graph.A.nonzero())))


def users(lines, n_users, n_nodes, **options):
    source, target = np.array(lines).T
    meta = {"bipartite": {"sources": n_users, "names": ["user", "item"]}}
    return spgnn.graph_from_coo(source, target, n_nodes, meta=meta, **options)


def scored(comm, graph, Z_NF):
    """Scores and ranks of a split graph whose rows are given."""
    dgraph = spgnn.distribute(graph, comm, method="random")
    scorer = LinkScorer(torch.nn.Module(), dgraph, Dot(Z_NF.shape[1]), 0)
    Z_nF = torch.from_numpy(np.asarray(Z_NF, np.float32)[dgraph.node_n])
    scorer.logits = lambda: Z_nF
    return scorer.final(), scorer.predictions()


@pytest.mark.parametrize("seed", range(4))
def test_a_path_of_four_nodes_has_a_pair_in_each_split_and_no_mirrored_negative(seed):
    graph = spgnn.split_links(spgnn.graph_from_coo([0, 1, 2], [1, 2, 3], 4), val=0.4, test=0.2, seed=seed)
    splits = [pairs_of(graph, role) for role in (TRAIN, VAL, TEST)]
    assert [len(of) for of in splits] == [1, 1, 1] and sorted(sum(splits, [])) == [(0, 1), (1, 2), (2, 3)]
    [(a, b)] = splits[0]
    assert edges_of(graph) == {(a, b), (b, a)}
    links, every = graph.links, np.arange(3)
    node_tK, is_source_tK = negatives_of(links, 200, seed, ALL).draw(links.source_T, links.target_T, every, 0)
    drawn = np.where(is_source_tK, links.target_T[:, None], links.source_T[:, None])
    found = set(zip(*np.sort([node_tK.ravel(), drawn.ravel()], axis=0).tolist()))
    assert found == {(0, 2), (0, 3), (1, 3)}  # the three pairs that are no links, each in one order or the other


def test_a_ring_without_val_trains_and_is_tested():
    graph = spgnn.split_links(spgnn.graph_from_coo(np.arange(10), (np.arange(10) + 1) % 10), val=0, test=0.2)
    assert [len(pairs_of(graph, role)) for role in (TRAIN, VAL, TEST)] == [8, 0, 2] and graph.nnz == 16
    dgraph = spgnn.distribute(graph).with_embedding(4)
    history = spgnn.train(Stack(MLP(4, 4)), dgraph, task="links", epochs=2)
    assert np.isnan(history.val) and 0 < history.test <= 1


def test_users_and_items_with_a_table_of_mirrored_lines_are_a_link_each():
    lines = [(0, 5), (0, 6), (1, 6), (1, 7), (2, 8), (3, 9), (3, 10), (4, 5), (4, 10), (2, 5)]
    graph = users(lines + [(b, a) for a, b in lines], 5, 11)
    split = spgnn.split_links(graph, val=0.2, test=0.2)
    links = split.links
    assert sorted(zip(links.source_T.tolist(), links.target_T.tolist())) == sorted(lines)
    assert links.among == (5, 11) and [len(links.of(role)) for role in (TRAIN, VAL, TEST)] == [6, 2, 2]
    assert edges_of(split) == {end for a, b in pairs_of(split, TRAIN) for end in ((a, b), (b, a))}


@pytest.mark.parametrize("edges", ["undirected", "directed"])
def test_lines_and_their_mirrors_are_in_one_split(edges):
    a, b = np.arange(20), (7 * np.arange(20) + 3) % 41 + 20
    graph = spgnn.graph_from_coo(np.r_[a, b], np.r_[b, a], 61).with_edges("both" if edges == "undirected" else "out")
    split = spgnn.split_links(graph, val=0.25, test=0.25)
    counts = [len(pairs_of(split, role)) for role in (TRAIN, VAL, TEST)]
    assert counts == ([10, 5, 5] if edges == "undirected" else [20, 10, 10])
    by_role = [set(pairs_of(split, role)) for role in (TRAIN, VAL, TEST)]
    assert len(set.union(*by_role)) == sum(map(len, by_role)) == 20
    assert edges_of(split) == {end for a, b in by_role[0] for end in ((a, b), (b, a))}


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("block", [7, 100])
def test_entities_whose_rows_are_equal_by_type_share_a_mean_rank(comm, block):
    kind_N = np.arange(100) % 10  # ten types of ten entities
    dgraph = spgnn.distribute(spgnn.graph_from_coo([0], [1], 100), comm, method="random")
    Z_NF = np.eye(10, dtype=np.float32)[kind_N]
    Z = Candidates(dgraph, torch.from_numpy(Z_NF[dgraph.node_n]))
    Z.block_bytes = block * 10 * 4
    target_q = np.arange(100)
    same, other = Z.ranks(Z_NF[target_q], target_q), Z.ranks(Z_NF[(target_q + 1) % 100], target_q)
    assert (same.rank_q() == 1 + 9 / 2).all()  # nine others of its type
    assert (other.rank_q() == 1 + 10 + 89 / 2).all()  # ten of the query's type above, all others equal
    known = (
        np.arange(101) * 3,
        (target_q[:, None] + [0, 10, 11]).ravel() % 100,
    )  # itself, one of its type, one of another
    assert (Z.ranks(Z_NF[target_q], target_q, known).rank_q() == 1 + 8 / 2).all()


@parallel([1, 2], mpi=[])
def test_constant_scores_have_the_reciprocal_of_the_mean_rank(comm):
    graph = spgnn.split_links(spgnn.graph_from_coo(np.arange(10), (np.arange(10) + 1) % 10), val=0.2, test=0.2)
    found, ranks = scored(comm, graph, np.ones((10, 3)))
    # Of ten nodes one is the target and one the other neighbour: eight are equal, also the node that asks.
    for split in ("val", "test"):
        of = found[split]
        assert (
            of["mrr"] == pytest.approx(1 / 5)
            and of["mrr_optimistic"] == 1
            and of["mrr_pessimistic"] == pytest.approx(1 / 9)
        )
        assert of["hits@3"] == 0 and of["hits@10"] == 1 and of["roc_auc"] == 0.5 and of["average_precision"] == 0.5
    assert (ranks[graph.links.of(VAL, TEST)] == 5).all() and np.isnan(ranks[graph.links.of(TRAIN)]).all()


@parallel([1, 3], mpi=[])
def test_scores_of_zero_and_one_have_exact_ties(comm):
    # Users 0 and 1, items 2 to 7; the first column of an item is its score, 1 for items 2, 3 and 4.
    lines, split = [(0, 2), (0, 3), (0, 5), (1, 6)], [0, 2, 2, 0]
    graph = spgnn.split_links(users(lines, 2, 8, edge_split=np.array(split, np.int8)))
    Z_NF = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    found, ranks = scored(comm, graph, Z_NF)
    of = dict(zip(graph.links.target_T.tolist(), ranks[:, 0].tolist()))
    # Item 3: of 2 (trained) and 5 (known) neither counts; 4 is equal. Item 5: 4 is above, 6 and 7 are equal.
    assert of[3] == 1.5 and of[5] == 3
    assert found["test"]["mrr"] == pytest.approx((1 / 1.5 + 1 / 3) / 2)


@parallel([1, 3], mpi=[3])
def test_a_user_without_a_held_out_item_is_no_part_of_recall(comm):
    # Users 0 to 6, items 7 to 36, in falling order of score. Users 0 to 5 train on item 36; 6 has that alone.
    lines = [(u, 36) for u in range(7)] + [(0, 7), (0, 30), (1, 8), (2, 29), (3, 7), (4, 26), (5, 27)]
    split = np.array([0] * 7 + [2] * 7, np.int8)
    graph = spgnn.split_links(users(lines, 7, 37, edge_split=split))
    Z_NF = np.r_[np.ones(7), np.arange(30, 0, -1)][:, None]
    found, _ = scored(comm, graph, Z_NF)
    # Ranks: 0: 1 and 24; 1: 2; 2: 23; 3: 1; 4: 20; 5: 21. Of six users with items, halves and wholes within twenty:
    assert found["test"]["recall@20"] == pytest.approx((0.5 + 1 + 0 + 1 + 1 + 0) / 6)
    gain = lambda rank: 1 / np.log2(1 + rank)
    of_0 = gain(1) / (gain(1) + gain(2))
    assert found["test"]["ndcg@20"] == pytest.approx((of_0 + gain(2) + gain(1) + gain(20)) / 6)
    assert found["test"]["mrr"] == pytest.approx((1 + 1 / 23 + 1 / 2 + 1 / 23 + 1 + 1 / 20 + 1 / 21) / 7)


def test_a_node_that_never_trains_keeps_its_row_and_is_named():
    split = np.array([0, 0, 0, 2], np.int8)
    graph = spgnn.graph_from_coo([0, 1, 2, 3], [1, 2, 0, 4], 5, edge_split=split)
    graph = spgnn.split_links(graph)
    assert graph.links.notes == ("1 of 1 val and test links have a node that no training link has, such as 3",)
    dgraph = spgnn.distribute(graph).with_embedding(4, seed=1)
    before = dgraph.X.detach().clone()
    spgnn.train(Stack(spgnn.layers.GCN(4, 4)), dgraph, task="links", loss="softmax", epochs=1)
    assert (dgraph.X[:3] != before[:3]).any()
    history = spgnn.train(Stack(MLP(4, 4)), spgnn.distribute(graph).with_embedding(4), task="links", epochs=1)
    assert 0 < history.test <= 1


@pytest.mark.parametrize("is_triple", [False, True])
def test_of_ten_lines_three_doubled_and_two_loops_are_told(is_triple):
    lines = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)] + [(0, 1), (1, 2), (2, 3)] + [(2, 2), (4, 4)])
    more = {"edge_y": np.zeros(10, int)} if is_triple else {}
    graph = spgnn.split_links(spgnn.graph_from_coo(*lines.T, 5, **more), val=0.2, test=0.2)
    notes = " ".join(graph.links.notes) + f" {graph.meta.get('duplicates')} duplicates"
    assert "2 self-loops, such as of node 2, are no targets" in notes
    assert ("3 links are listed again" if is_triple else "3 duplicates") in notes
    assert {role: len(graph.links.of(role)) for role in ROLES} == {TRAIN: 3, VAL: 1, TEST: 1, -1: 0}


def test_a_table_whose_third_row_names_an_unknown_node_shifts_nothing(tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text("id,f\n" + "".join(f"n{i},{i}\n" for i in range(5)))
    rows = ["n0,n1", "n1,n2", "n9,n3", "n2,n3", "n3,n4", "n4,n0"]
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    edges.write_text("\n".join(["source,target", *rows]) + "\n")
    given = ("convert", edges, tmp_path / "g", "--features", nodes, "--relabel")
    code, _, error = run(capsys, *given)
    assert code == 3 and "1 of 6 nodes have no row, node n9 first" in error and not (tmp_path / "g").exists()
    assert run(capsys, *given, "--missing", "zero")[0] == 0
    graph = spgnn.load_graph(tmp_path / "g")
    assert [f"n{int(x)}" for x in graph.X[:, 0]] == ["n0" if name == "n9" else name for name in graph.ids]
    rows[2] = "n8,n3"
    out = ("--task", "links", "--epochs", 1, "--hidden", 4, "--split", "0.2,0.2", "--out", tmp_path / "run")
    assert run(capsys, "train", tmp_path / "g", *out)[0] == 0
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["source,target", *rows]) + "\n")
    code, _, error = run(capsys, "predict", tmp_path / "run", "--pairs", pairs, "--out", tmp_path / "l.csv")
    assert (
        code == 3 and f"{pairs}: row 3: source 'n8' is not in the graph" in error and not (tmp_path / "l.csv").exists()
    )
