"""Files that other programs read: what they are, and the line that loads them."""

from __future__ import annotations

import re
from pathlib import Path

from .readers.text import peek, without_packing

GRAPH, FRAME = "spgnn.load_graph({})", "spgnn.from_pandas({})"
# (name, endings, pattern of the first bytes, expression of FILE)
FILES = (
    ("GML", ".gml", rb"\s*(creator[^\n]*\s*)?graph\s*\[", GRAPH.format("networkx.read_gml(FILE)")),
    ("GraphML", ".graphml", rb"(?s).*<graphml", GRAPH.format("networkx.read_graphml(FILE)")),
    ("GEXF", ".gexf", rb"(?s).*<gexf", GRAPH.format("networkx.read_gexf(FILE)")),
    ("Pajek", ".net .paj", rb"(?i)\s*\*(vertices|network)", GRAPH.format("networkx.read_pajek(FILE)")),
    ("graph6", ".g6 .graph6", rb">>graph6<<", GRAPH.format("networkx.read_graph6(FILE)")),
    (
        "Graphviz",
        ".dot .gv",
        rb"\s*(strict\s+)?(di)?graph\s[^\[]*\{",
        GRAPH.format("networkx.nx_agraph.read_dot(FILE)"),
    ),
    (
        "node-link JSON",
        ".json",
        rb'(?s)\s*\{.*"(nodes|links|directed)"',
        GRAPH.format('networkx.node_link_graph(json.load(open(FILE)), edges="links")'),
    ),
    ("torch file", ".pt .pth", rb"(?!)", GRAPH.format("torch.load(FILE, weights_only=False)") + ", if it is yours"),
    ("MATLAB file", ".mat", rb"MATLAB", GRAPH.format('scipy.io.loadmat(FILE)["A"]') + ", A the name of the matrix"),
    (
        "pickle",
        ".pkl .pickle .gpickle",
        rb"\x80[\x02-\x05]",
        GRAPH.format("pickle.load(open(FILE, 'rb'))") + ", if it is yours",
    ),
    ("Excel table", ".xlsx .xls", rb"(?!)", FRAME.format("pandas.read_excel(FILE)")),
    ("Feather table", ".feather .arrow", rb"ARROW1", FRAME.format("pandas.read_feather(FILE)")),
    ("JSON lines", ".jsonl .ndjson", rb"(?!)", FRAME.format("pandas.read_json(FILE, lines=True)")),
    ("NumPy array", ".npy", rb"\x93NUMPY", GRAPH.format("numpy.load(FILE)")),
    ("NumPy archive", ".npz", rb"(?!)", GRAPH.format('numpy.load(FILE)["A"]') + ", A the name of its edges"),
    ("adjacency list", ".adjlist", rb"(?!)", GRAPH.format("networkx.read_adjlist(FILE)")),
    ("zip archive", ".zip", rb"(?!)", FRAME.format("pandas.read_csv(FILE)")),
    ("HDF5 file", ".h5 .hdf5", rb"\x89HDF", FRAME.format("pandas.read_hdf(FILE)")),
)


def foreign(path: Path) -> str:
    """Return what a file is and the line of Python that loads it, or "" for one of no known kind."""
    head, ending = peek(path), Path(without_packing(path.name.lower())).suffix
    for is_found in (
        lambda endings, pattern: re.match(pattern, head),
        lambda endings, _: ending and ending in endings.split(),
    ):
        for name, endings, pattern, line in FILES:
            if is_found(endings, pattern):
                return f"a{'n' * (name[0] in 'aE')} {name} file, which {line.replace('FILE', repr(str(path)))} loads in Python"
    return ""
