"""The built-in graph: its known numbers, and that it is what runs/build_wordnet makes of WordNet's files."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spgnn.data import load_graph, load_wordnet, wordnet
from spgnn.data.wordnet import PACKAGED, TYPES, pointers_of, read_packaged
from spgnn.errors import FormatError, InputError, UsageError

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


@pytest.mark.slow
def test_the_build_script_says_what_to_install(tmp_path):
    script = [sys.executable, ROOT / "runs" / "build_wordnet", "--source", tmp_path]
    run = subprocess.run(script, capture_output=True, text=True)
    assert run.returncode == 3 and "install the Debian package wordnet-base" in run.stderr


def test_typed_pointers_are_a_multigraph():
    graph, (_, dst, kind) = load_wordnet(typed=True), pointers_of(read_packaged())
    assert graph.nnz == len(kind) == 364_552 and graph.without_edge_attr().nnz == load_wordnet().nnz == 361_647
    assert (graph.edge_attr.argmax(axis=1) == kind[graph.edge_ids]).all() and (graph.edge_attr.sum(axis=1) == 1).all()
    assert (graph.A.indices == dst[graph.edge_ids]).all()
