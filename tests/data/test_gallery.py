"""Built-in graphs: generated ones have the sizes, degrees and shares that their docstrings promise; WordNet is WordNet's."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spgnn.data import GALLERY, generate, load_graph, load_wordnet, wordnet
from spgnn.data.gallery import _draw_keys, complete, grid, kronecker, path, random_directed, rmat, sbm, star
from spgnn.data.wordnet import PACKAGED, TYPES, pointers_of, read_packaged
from spgnn.errors import FormatError, InputError, UsageError


def degrees(graph) -> list[int]:
    return np.diff(graph.A.indptr).tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_path_has_two_nonzeros_an_edge_and_two_ends(n):
    graph = path(n)
    assert (graph.n_nodes, graph.nnz, graph.is_symmetric) == (n, 2 * max(n - 1, 0), True)
    assert degrees(path(7)) == [1, 2, 2, 2, 2, 2, 1]


def test_star_joins_the_centre_to_all():
    assert degrees(star(5)) == [4, 1, 1, 1, 1]
    assert star(5).is_symmetric and star(1).nnz == 0


def test_grid_numbers_nodes_row_by_row():
    graph = grid(2, 3)
    assert graph.nnz == 2 * (2 * 2 * 3 - 2 - 3)
    assert graph.is_symmetric and degrees(graph) == [2, 3, 2, 2, 3, 2]
    assert np.flatnonzero(graph.A.toarray()[1]).tolist() == [0, 2, 4]
    assert grid(1, 4).digest() == path(4).digest()


def test_complete_joins_every_pair():
    graph = complete(5)
    assert (graph.nnz, degrees(graph), graph.is_symmetric) == (20, [4] * 5, True)
    assert graph.A.diagonal().sum() == 0 and complete(0).nnz == 0


def test_random_directed_has_exactly_n_degree_edges_and_no_loop():
    graph = random_directed(50, 3, seed=1)
    assert (graph.n_nodes, graph.nnz, graph.A.diagonal().sum()) == (50, 150, 0)
    assert not graph.is_symmetric
    assert random_directed(6, 5).digest() == complete(6).digest()


def test_sbm_keeps_its_share_of_edges_inside_a_class():
    graph = sbm(3000, classes=5, degree=20, inside=0.7, features=8, seed=3)
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    inside = np.mean(graph.y[rows] == graph.y[graph.A.indices])
    assert graph.is_symmetric and abs(inside - 0.7) < 0.02
    assert abs(graph.nnz / graph.n_nodes - 20) < 0.5
    assert np.bincount(graph.y).tolist() == [600] * 5
    assert graph.X.shape == (3000, 8) and graph.X.dtype == np.float32
    assert np.bincount(graph.split).tolist() == [1800, 600, 600]


def test_sbm_features_tell_the_class_when_there_is_little_noise():
    graph = sbm(400, classes=4, features=32, noise=0.1)
    mean = np.stack([graph.X[graph.y == c].mean(axis=0) for c in range(4)])
    assert np.array_equal(np.argmax(graph.X @ mean.T, axis=1), graph.y)


@pytest.mark.parametrize("n, classes", [(1, 1), (3, 5), (7, 3)])
def test_sbm_of_few_nodes_is_a_graph(n, classes):
    graph = sbm(n, classes, degree=2)
    assert graph.n_nodes == n and graph.A.diagonal().sum() == 0


def test_rmat_edges_and_duplicates_add_up():
    graph = rmat(10, 8, seed=2)
    assert graph.n_nodes == 1024
    assert graph.nnz + graph.meta["duplicates"] == 8 * 1024


def test_kronecker_follows_its_initiator():
    # With one level the edges fall into the four cells in the ratio 9 : 5 : 5 : 1.
    keys = _draw_keys(np.random.default_rng(0), 1, 200_000, 0.45, 0.25, 0.25)
    assert np.allclose(np.bincount(keys) / 200_000, np.array([0.9, 0.5, 0.5, 0.1]) / 2, atol=0.005)
    graph = kronecker(11, 16)
    quarter = graph.A[:1024].nnz / graph.nnz
    assert abs(quarter - 0.7) < 0.02 and graph.nnz > 0.9 * 16 * 2048


@pytest.mark.parametrize("name", GALLERY)
def test_a_spec_names_every_generator_and_a_seed_repeats_it(name):
    assert load_graph(name).digest() == generate(name).digest()
    if "seed" in GALLERY[name].__annotations__:
        assert generate(f"{name}:seed=1").digest() != generate(f"{name}:seed=2").digest()


@pytest.mark.parametrize("spec, message", [
    ("gird:rows=2", "did you mean 'grid'"), ("grid:row=2", "unknown parameter 'row'; did you mean 'rows'"),
    ("grid:rows=two", "rows = 'two'; expected int"), ("grid:rows=0", "rows = 0; expected at least 1"),
    ("path:n=-1", "n = -1; expected at least 0"), ("random_directed:n=4,degree=4", "expected at most n - 1 = 3"),
    ("rmat:a=0.9,b=0.2", "d = -0.29; expected at least 0"), ("rmat:scale=50", "expected at most 40"),
    ("sbm:noise=nan", "noise = nan; expected at least 0"), ("grid:return=2", "unknown parameter 'return'"),
])  # fmt: skip
def test_a_wrong_spec_says_what_is_wrong(spec, message):
    with pytest.raises(UsageError, match=message):
        generate(spec)


ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("/usr/share/wordnet")


@pytest.mark.slow
def test_wordnet_has_its_known_numbers():
    start = time.perf_counter()
    graph = load_graph("wordnet")
    assert time.perf_counter() - start < 2
    assert (graph.n_nodes, graph.nnz, graph.n_classes) == (117_659, 361_647, 45)
    assert graph.X.shape == (117_659, 1024) and graph.X.nnz == 855_638
    assert not graph.is_symmetric
    undirected = graph.with_edges("undirected").A
    assert (undirected.nnz - np.count_nonzero(undirected.diagonal())) // 2 == 183_789
    assert np.bincount(graph.split).tolist() == [70_595, 23_532, 23_532]
    # Nouns, verbs, adjectives, adverbs in file order; verbs have the lexicographer files 29 to 43.
    assert set(graph.y[82_115 : 82_115 + 13_767]) == set(range(29, 44))
    kinds = [name.partition(".")[0] for name in np.array(graph.classes)[graph.y]]
    assert kinds == ["noun"] * 82_115 + ["verb"] * 13_767 + ["adj"] * 18_156 + ["adv"] * 3_621
    assert [graph.classes[c] for c in (3, 5, 28, 30, 44)] == [
        "noun.Tops", "noun.animal", "noun.time", "verb.change", "adj.ppl",
    ]  # fmt: skip


@pytest.mark.slow
def test_pointers_have_types_and_can_be_chosen():
    src, dst, kind = pointers_of(read_packaged())
    counts = dict(zip(TYPES, np.bincount(kind, minlength=len(TYPES)).tolist()))
    assert counts["@"] == counts["~"] == 89_089
    hypernym = kind == TYPES.index("@")
    chosen = load_wordnet(pointers=("@",))
    assert chosen.nnz == len(np.unique(src[hypernym] * 117_659 + dst[hypernym]))
    assert np.array_equal(chosen.A.T.tocsr().indices, load_wordnet(pointers=("~",)).A.indices)
    with pytest.raises(UsageError, match="no pointers of type '@x'"):
        load_wordnet(pointers=("@x",))


def test_a_damaged_package_file_is_refused(tmp_path):
    data = bytearray(PACKAGED.read_bytes())
    for position in (5, 50_000, len(data) - 20):
        changed = data.copy()
        changed[position] ^= 0xFF
        (tmp_path / "w.npz.xz").write_bytes(changed)
        with pytest.raises(FormatError, match="install spgnn again"):
            read_packaged(tmp_path / "w.npz.xz")
    with pytest.raises(InputError, match="No such file"):
        read_packaged(tmp_path / "none")


def test_other_arrays_than_the_ones_of_this_version_are_refused(monkeypatch):
    monkeypatch.setattr(wordnet, "SHA256", "0" * 64)
    with pytest.raises(FormatError, match="SHA-256"):
        read_packaged()


@pytest.mark.slow
@pytest.mark.skipif(not (SOURCE / "data.noun").is_file(), reason="the Debian package wordnet-base is not installed")
def test_the_build_script_makes_the_packaged_arrays(tmp_path):
    script = [sys.executable, ROOT / "runs" / "build_wordnet"]
    run = subprocess.run([*script, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert wordnet.SHA256 in run.stdout and "117659 synsets, 364552 typed pointers" in run.stdout


def test_typed_pointers_are_a_multigraph():
    graph, (_, dst, kind) = load_wordnet(typed=True), pointers_of(read_packaged())
    assert graph.nnz == len(kind) == 364_552 and graph.without_edge_attr().nnz == load_wordnet().nnz == 361_647
    assert (graph.edge_attr.argmax(axis=1) == kind[graph.edge_ids]).all() and (graph.edge_attr.sum(axis=1) == 1).all()
    assert (graph.A.indices == dst[graph.edge_ids]).all()
