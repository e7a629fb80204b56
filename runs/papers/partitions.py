"""What the recipes of SDT-GNN and CATGNN share: graphs, one partition measured, seconds, and memory in processes of their own.

Shapes: N nodes, k parts (p in the papers).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from published_streaming import BALANCE, BASELINES
from recipes import RECIPES, REPO, SMOKE, chosen, data_folder, from_least, machine, parse, positives, table

from spgnn import load_graph, part_graph
from spgnn.graph import Graph
from spgnn.machine import peak_rss_mb, rss_bytes
from spgnn.partition import part_stream
from spgnn.partition.metrics import metrics

STREAMED = ("spring", "spring+", *BASELINES)
IN_MEMORY = ("metis", "volume", "entropy", "random", "block")
METHODS = (*STREAMED, *IN_MEMORY)

# Name -> path in the data folder, or a built-in name.
PAPERS_GRAPHS = {
    **{name: RECIPES[name].path for name in ("cora", "citeseer", "pubmed")},
    "chameleon": RECIPES["chameleon_filtered"].path,
    "coauthor_cs": RECIPES["coauthor_cs"].path,
    "flickr": RECIPES["flickr_graphsaint"].path,
    "arxiv": RECIPES["arxiv_graphsaint"].path,
}
OTHER_GRAPHS = {
    "amazon_photo": RECIPES["amazon_photo"].path,
    "tolokers": RECIPES["tolokers"].path,
    "wordnet": "wordnet",
    "pgp": "metis/PGPgiantcompo.graph",
    "wing": "metis/wing.graph",
    "road_ny": "matrix_market/road_ny.mtx.gz",
    "cnr-2000": "edge_lists/cnr-2000.txt.gz",
}
GRAPHS = PAPERS_GRAPHS | OTHER_GRAPHS


@dataclass(frozen=True, slots=True)
class Row:
    """One graph in k parts by one method.

    replication_factor: with the full neighbour lists of every part's own nodes. cut_factor: what the method itself
    replicates, before they are restored: edges' ends of a vertex cut, nothing of an edge cut. Imbalances: largest over mean.
    """

    graph: str
    n: int
    nnz: int
    k: int
    method: str
    replication_factor: float
    cut_factor: float
    node_imbalance: float
    nnz_imbalance: float
    seconds: float


def load(name: str, data: Path) -> Graph:
    """Return the graph with its reverse edges, as both papers use it."""
    source = GRAPHS[name]
    return load_graph(source if source == name else data / source).with_edges("undirected")


def cut(graph: Graph, name: str, k: int, method: str, balance: float = BALANCE) -> Row | None:
    """Return what a method makes of a graph; None for one that asks for features which the graph lacks."""
    if method == "entropy" and graph.X is None:
        return None
    if method in STREAMED:
        part = part_stream(graph, k, method, balance=balance)
        seconds, copies = part.total_s, part.details.get("cut_replicas", graph.n_nodes)
    else:
        part = part_graph(graph, k, method, balance=balance)
        seconds, copies = part.seconds, graph.n_nodes
    found = metrics(graph.A, part.owner_N, k)
    factors = {key: found[key] for key in ("replication_factor", "node_imbalance", "nnz_imbalance")}
    return Row(name, graph.n_nodes, graph.nnz, k, method, **factors, cut_factor=copies / graph.n_nodes, seconds=seconds)


def replication(args: argparse.Namespace) -> list[Row]:
    """Return the rows of all graphs, k and methods asked for; progress on stderr."""
    rows = []
    for name in args.graphs:
        graph = load(name, args.data)
        for k in args.k:
            rows += [row for method in args.methods if (row := cut(graph, name, k, method, args.balance)) is not None]
        print(f"{name}: {graph.n_nodes:,} nodes, {graph.nnz:,} nonzeros", file=sys.stderr, flush=True)
    return rows


def replication_table(rows: list[Row], title: str) -> str:
    """Return replication factors, a line each graph and k; of vertex cuts in brackets what they replicate themselves."""
    methods = [method for method in METHODS if any(row.method == method for row in rows)]
    of = {(row.graph, row.k, row.method): row for row in rows}

    def cell(row: Row | None) -> str:
        if row is None:
            return "-"
        return f"{row.replication_factor:.2f}" + (f" ({row.cut_factor:.2f})" if row.method in BASELINES else "")

    cases = dict.fromkeys((row.graph, row.k) for row in rows)
    return table(
        title,
        ["graph", "p", *methods],
        [[graph, k, *(cell(of.get((graph, k, method))) for method in methods)] for graph, k in cases],
    )


def speed(args: argparse.Namespace, k: int) -> tuple[list[dict], str]:
    """Return seconds of the streaming methods side by side: the fastest of some runs, which take turns."""
    records, methods = [], [method for method in STREAMED if method in args.methods or method == "spring"]
    for name, path in edge_files(args):
        runs = [{method: part_stream(path, k, method).total_s for method in methods} for _ in range(args.repeat)]
        facts = {"table": "speed", "graph": name, "nnz": path.stat().st_size // 8, "k": k}
        records += [facts | {"method": m, "seconds": min(run[m] for run in runs)} for m in methods]
    of = {(r["graph"], r["method"]): r["seconds"] for r in records}
    rows = [
        [name, *(f"{of[name, m]:.4f} ({of[name, m] / of[name, 'spring']:.1f})" for m in methods)]
        for name in args.graphs
    ]
    title = f"Seconds of partitioning an edge file, p = {k} (over spring's), fastest of {args.repeat}, one core"
    return records, table(title, ["graph", *methods], rows)


def memory(args: argparse.Namespace, k: int, methods: Sequence[str]) -> list[dict]:
    """Return the peak memory above the interpreter's of some methods on each graph's edge file, MB."""
    records = []
    for name, path in edge_files(args):
        file_mb = path.stat().st_size / 1e6
        records += [
            {"table": "memory", "graph": name, "k": k, "method": m, "mb": alone(path, m, k), "file_mb": file_mb}
            for m in methods
        ]
    return records


def edge_files(args: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Yield each graph's name and its edges, both directions, as a binary file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for name in args.graphs:
            path = Path(folder) / f"{name}.bin"
            write_pairs(load(name, args.data), path)
            yield name, path
            path.unlink()


def ratios(rows: list[Row], method: str) -> np.ndarray:
    """Return replication factor of each baseline over that of method, for each graph, k and baseline."""
    of = {(row.graph, row.k, row.method): row.replication_factor for row in rows}
    return np.array(
        [
            of[graph, k, base] / mine
            for (graph, k, other), mine in of.items()
            if other == method
            for base in BASELINES
            if (graph, k, base) in of
        ]
    )


def write_pairs(graph: Graph, path: Path) -> None:
    """Write the nonzeros as pairs of int32, what each row reads, row by row."""
    A = graph.A
    with path.open("wb") as file:
        for start in range(0, graph.n_nodes, 1 << 16):
            ptr = A.indptr[start : start + (1 << 16) + 1]
            rows = np.repeat(np.arange(start, start + len(ptr) - 1), np.diff(ptr))
            np.stack([A.indices[ptr[0] : ptr[-1]], rows], axis=1).astype("<i4").tofile(file)


def alone(path: Path, method: str, k: int) -> float:
    """Return the peak memory of a method above the interpreter's, MB, in a process of its own, on one core.

    The edges come from a file of int32 pairs; a method that is not a stream's first loads them as a graph.
    """
    argv = [sys.executable, __file__, str(path), method, str(k)]
    if hasattr(os, "sched_setaffinity"):
        argv = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *argv]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if done.returncode:
        print(f"{method} on {path.name}: {done.stderr.strip()[-500:]}", file=sys.stderr)
        sys.exit(4)
    return float(done.stdout)


def run_alone(path: str, method: str, k: int) -> float:
    """Partition once; return the peak memory above what the interpreter with its libraries has, MB."""
    if method not in STREAMED:
        import pymetis  # noqa: F401  before memory is looked at
    before = rss_bytes()
    if method in STREAMED:
        part_stream(path, k, method)
    else:
        part_graph(load_graph(path), k, method)
    return peak_rss_mb() - before / 1e6


def parse_tables(options: argparse.ArgumentParser, parts: Sequence[str], graphs: dict[str, str]) -> argparse.Namespace:
    """Return the arguments that both recipes take, and those that options has; end with code 2 at a bad one."""
    options.add_argument("--only", default=",".join(parts), help="which tables; default: %(default)s")
    options.add_argument("--graphs", default=",".join(graphs), help=f"some of {','.join(GRAPHS)}; default: %(default)s")
    options.add_argument("-k", type=positives, default="4,8,16", help="numbers of parts; default: %(default)s")
    options.add_argument("--methods", default=",".join(METHODS), help="partitioners; default: %(default)s")
    options.add_argument(
        "--balance",
        type=float,
        default=BALANCE,
        help="largest number of nodes of a part over the mean; of the in-memory methods, work; default: %(default)s",
    )
    options.add_argument(
        "--repeat",
        type=from_least(1),
        default=3,
        help="runs of each method where seconds are compared; the fastest counts; default: %(default)s",
    )
    options.add_argument("--json", action="store_true", help="print JSON lines, no tables")
    out = SMOKE / options.get_default("out").name
    args = parse(options, f"--graphs flickr,arxiv -k 2,3 --repeat 1 --out {out}")
    for option, what, names in (
        ("only", "table", parts),
        ("graphs", "graph", tuple(GRAPHS)),
        ("methods", "method", METHODS),
    ):
        setattr(args, option, chosen(getattr(args, option), names, what))
    args.data = data_folder(args)
    if not 1 <= args.balance < float("inf"):
        options.error(f"argument --balance: {args.balance}; expected a number of 1 or more")
    return args


def finish(args: argparse.Namespace, records: list[dict], texts: list[str]) -> None:
    """Print the tables, or the records with --json, and write both into --out."""
    texts = [machine(1), *texts]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "records.jsonl").write_text(lines, encoding="utf-8")
    (args.out / "tables.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    sys.stdout.write(lines if args.json else "\n\n".join(texts) + "\n")


def records_of(rows: list[Row], what: str = "replication") -> list[dict]:
    return [{"table": what} | asdict(row) for row in rows]


if __name__ == "__main__":
    print(run_alone(sys.argv[1], sys.argv[2], int(sys.argv[3])))
