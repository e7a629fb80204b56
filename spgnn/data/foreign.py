"""Files that other programs read: what they are, and the line that loads them."""

from __future__ import annotations

import re
from pathlib import Path

from .readers.text import peek, without_packing

NODE_LINK = 'networkx.node_link_graph(json.load(open(FILE)), edges="links")'
TRIPLES = 'pandas.read_csv(FILE, sep=" ", header=None, names=["source", "relation", "target", "end"], index_col=False)'
# (name, endings, pattern of the first bytes, expression of FILE, what else to know); tables are edges of from_pandas.
FILES = (
    ("GML", ".gml", rb"\s*(creator[^\n]*\s*)?graph\s*\[", "networkx.read_gml(FILE)", ""),
    ("GraphML", ".graphml", rb"(?s).*<graphml", "networkx.read_graphml(FILE)", ""),
    ("GEXF", ".gexf", rb"(?s).*<gexf", "networkx.read_gexf(FILE)", ""),
    ("Pajek", ".net .paj", rb"(?i)\s*\*(vertices|network)", "networkx.read_pajek(FILE)", ""),
    ("graph6", ".g6 .graph6", rb">>graph6<<", "networkx.read_graph6(FILE)", ""),
    ("Graphviz", ".dot .gv", rb"\s*(strict\s+)?(di)?graph\s[^\[]*\{", "networkx.nx_agraph.read_dot(FILE)", ""),
    ("node-link JSON", ".json", rb'(?s)\s*\{.*"(nodes|links|directed)"', NODE_LINK, ""),
    ("torch file", ".pt .pth", rb"(?!)", "torch.load(FILE, weights_only=False)", ", if it is yours"),
    ("MATLAB file", ".mat", rb"MATLAB", 'scipy.io.loadmat(FILE)["A"]', ", A the name of the matrix"),
    ("pickle", ".pkl .pickle .gpickle", rb"\x80[\x02-\x05]", "pickle.load(open(FILE, 'rb'))", ", if it is yours"),
    ("Excel table", ".xlsx .xls", rb"(?!)", "pandas.read_excel(FILE)", ""),
    ("Feather table", ".feather .arrow", rb"ARROW1", "pandas.read_feather(FILE)", ""),
    ("JSON lines", ".jsonl .ndjson", rb"(?!)", "pandas.read_json(FILE, lines=True)", ""),
    ("NumPy array", ".npy", rb"\x93NUMPY", "numpy.load(FILE)", ""),
    ("NumPy archive", ".npz", rb"(?!)", 'numpy.load(FILE)["A"]', ", A the name of its edges"),
    ("N-Triples", ".nt .nq", rb"<[^>\n]+>\s+<[^>\n]+>\s", TRIPLES, ""),
    ("adjacency list", ".adjlist", rb"(?!)", "networkx.read_adjlist(FILE)", ""),
    ("zip archive", ".zip", rb"(?!)", "pandas.read_csv(FILE)", ""),
    ("HDF5 file", ".h5 .hdf5", rb"\x89HDF", "pandas.read_hdf(FILE)", ""),
)


def foreign(path: Path) -> str:
    """Return what a file is and the line of Python that loads it, or "" for one of no known kind."""
    head, ending = peek(path), Path(without_packing(path.name.lower())).suffix
    for is_found in (
        lambda endings, pattern: re.match(pattern, head),
        lambda endings, _: ending and ending in endings.split(),
    ):
        for name, endings, pattern, read, more in FILES:
            if is_found(endings, pattern):
                make = "from_pandas" if read.startswith("pandas") else "load_graph"
                return f"a{'n' * (name[0] in 'aE')} {name} file, which spgnn.{make}({read.replace('FILE', repr(str(path)))}){more} loads in Python"
    return ""
