"""A slice of runs/fuzz_readers: broken files load right or give one clean error; and the campaign sees what is bad."""

import subprocess
import sys
import zlib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest
import tiny_files as tiny
from pairs import full_beyond

import spgnn.data
from spgnn.data.formats import read_graph

SCRIPT = Path(__file__).resolve().parents[2] / "runs" / "fuzz_readers"


def run_script(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=300)


def campaign():
    """The script as a module."""
    loader = SourceFileLoader("fuzz_readers", str(SCRIPT))
    module = module_from_spec(spec_from_loader("fuzz_readers", loader))
    loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("seed", full_beyond(1, ["11", "12"]))
def test_broken_files_of_every_format_load_or_give_one_clean_error(seed):
    done = run_script("--count", "160", "--seed", seed)
    assert done.returncode == 0, done.stdout + done.stderr
    total = done.stdout.split("\nall")[1].split()
    assert total[0] == "160" and total[3:7] == ["0"] * 4
    assert all(name in done.stdout for name in spgnn.data.known_formats())


def exhaust(path, format):
    return np.ones(3 << 27)


def misuse(path, format):
    raise KeyError("shape")


def break_promise(path, format):
    graph = read_graph(path, format)
    graph.A.indices.flags.writeable = True
    graph.A.indices[0] = 77
    return graph


@pytest.mark.slow
@pytest.mark.parametrize(
    "load, outcome", full_beyond(1, [(misuse, "crash"), (exhaust, "over memory"), (break_promise, "wrong")])
)
def test_the_campaign_sees_what_is_bad(tmp_path, monkeypatch, load, outcome):
    monkeypatch.setattr(spgnn.data, "load_graph", load)
    assert campaign().attempt(tiny.write_edges(tmp_path), "edges", 1024, None)["outcome"] == outcome


@pytest.mark.slow
def test_the_campaign_sees_another_graph_behind_a_checksum(tmp_path):
    path = tiny.write_edges_gz(tmp_path)
    assert campaign().attempt(path, "edges", 1024, read_graph(path).digest())["outcome"] == "loaded"
    assert campaign().attempt(path, "edges", 1024, "another")["outcome"] == "wrong"


def packed(text: bytes, times: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(text) for _ in range(times)) + packer.flush()


def edges_gz(folder):
    path = folder / "e.txt.gz"
    path.write_bytes(packed(b"0 0\n" * (1 << 18), 31))
    return path, "edges"


def symmetric_mtx_gz(folder):
    path, n_entries = folder / "m.mtx.gz", 31 << 18
    header = b"%%%%MatrixMarket matrix coordinate pattern symmetric\n9 9 %d\n" % n_entries
    path.write_bytes(packed(header, 1) + packed(b"2 1\n" * (1 << 18), 31))
    return path, "mtx"


def wide_ogb_table(folder):
    path = tiny.write_ogb(folder)
    (path / "raw" / "node-feat.csv.gz").write_bytes(packed(b"0," * (1 << 19) + b"\n", 31))
    return path, "ogb"


def flat_npz(folder):
    edges = np.zeros((15 << 20, 2), np.int8)
    np.savez_compressed(
        folder / "h.npz", node_features=np.zeros((1, 1), bool), node_labels=np.zeros(1, int), edges=edges
    )
    return folder / "h.npz", "heterophilous"


def shared_csr(folder):
    ones, nnz = np.ones(15 << 20, bool), 15 << 20
    np.savez_compressed(
        folder / "s.npz", format="csr", shape=(1, 1), data=ones, indices=np.zeros(nnz, np.int8), indptr=[0, nnz]
    )
    return folder / "s.npz", "scipy"


@pytest.mark.slow
@pytest.mark.parametrize("write", full_beyond(2, [edges_gz, flat_npz, symmetric_mtx_gz, wide_ogb_table, shared_csr]))
def test_the_most_that_a_small_file_may_unpack_to_stays_below_a_gigabyte(tmp_path, write):
    path, form = write(tmp_path)
    result = campaign().attempt(path, form, 1024, None)
    assert result["outcome"] in ("loaded", "clean error"), result
    assert result["seconds"] < 30
