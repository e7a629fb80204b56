"""The formats of graph files: a reader registers under a name, detection asks each of them; files of other programs.

@reader("edges", detect=is_edge_list)
def read_edges(path, progress): ...
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..config import TableConfig, has_checkpoint
from ..errors import FormatError, InputError, ResourceError, UsageError, is_out_of_memory, nearest
from ..graph import Graph
from .readers.text import Progress, peek, without_packing

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
    ("N-Quads", ".nq", rb"<[^>\n]+>\s+<[^>\n]+>\s", TRIPLES, ""),
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


Read = Callable[..., Graph]  # (path, progress, **options)
Detect = Callable[[Path], bool]
DEFAULTS = TableConfig()
ATTRIBUTES = ("edge_features", "antisymmetric", "edge_labels", "edge_split")
LISTED = ("duplicates", *ATTRIBUTES)  # options of formats that list edges
OF_EDGES = ("source", "target", "weight", "relabel", "bipartite", *LISTED)
OF_TABLES = ("cutoff", "missing")

# What NumPy, zlib and zipfile raise on damaged bytes, if a reader did not check for it.
DAMAGE = (OSError, EOFError, ValueError, LookupError, OverflowError, RecursionError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its name, its reader, and its detection."""

    name: str
    read: Read
    detect: Detect
    takes: tuple[str, ...] = ()  # keywords of read that are options of TableConfig

    @property
    def looks_for(self) -> str:
        """The first docstring line of detect, else of read."""
        text = self.detect.__doc__ or self.read.__doc__ or ""
        return text.strip().split("\n")[0].rstrip(".")


_registry: dict[str, Format] = {}


def reader(name: str, detect: Detect, takes: tuple[str, ...] = ()) -> Callable[[Read], Read]:
    """Register read(path, progress) -> Graph under name; detect(path) -> bool says whether a path is of it.

    detect is called with any path, also one that does not exist (Planetoid's is a prefix). The first
    line of its docstring is what an error says was looked for. takes: the options of tables
    that read has as keywords, such as duplicates.
    """

    def register(read: Read) -> Read:
        if name in _registry and _registry[name].read.__module__ != read.__module__:
            raise UsageError(f"format {name!r} is already registered by {_registry[name].read.__module__}")
        _registry[name] = Format(name, read, detect, takes)
        return read

    return register


def known_formats() -> dict[str, Format]:
    """Return {name: format}: the native folder, one for each file format in data/readers, and those of users."""
    return dict(_registry)


def detect_format(path: str | Path) -> str:
    """Return the name of a path's format.

    Raises: FormatError with the formats that were looked for, or that it could be.
    """
    path = Path(path)
    known = known_formats()
    try:
        found = [name for name, format in known.items() if format.detect(path)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(found) == 1:
        return found[0]
    if found:
        raise FormatError(f"{path}: could be {' or '.join(sorted(found))}; name one with --format")
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if has_checkpoint(path):
        raise InputError(
            f"{path}: is a run, not a graph; `spgnn train --resume {path}` continues it, `spgnn predict {path}` predicts"
        )
    if kind := path.is_file() and foreign(path):
        raise FormatError(f"{path}: {kind}; see spgnn.save_graph, or name another format with --format")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is a pipe or device; expected a file or folder")
    looked = "\n".join(f"  {name:14} {known[name].looks_for}" for name in sorted(known))
    raise FormatError(f"{path}: not a graph of a known format; looked for:\n{looked}\nname the format with --format")


def read_graph(
    path: str | Path, format: str | None = None, progress: Progress = None, options: TableConfig = DEFAULTS
) -> Graph:
    """Read the graph at path in the named format, or in the one that is detected.

    Raises: UsageError for an unknown format; FormatError for a file that is not what its format says.
    """
    path = Path(path)
    known = known_formats()
    if format is not None and format not in known:
        raise UsageError(f"format {format!r} is not known{nearest(format, known)}")
    name = format or detect_format(path)
    given = {
        key: getattr(options, key) for key in (*OF_EDGES, *OF_TABLES) if getattr(options, key) != getattr(DEFAULTS, key)
    }
    for key in given:
        if key not in (*known[name].takes, "missing") and (key, given[key]) != ("duplicates", "refuse"):
            raise UsageError(f"--{key.replace('_', '-')} is no option of the format {name} of {path}; omit it")
    try:
        graph = known[name].read(path, progress, **{key: given[key] for key in given if key in known[name].takes})
        if progress and path.is_file():  # not every reader counts
            progress(path.stat().st_size, path.stat().st_size)
    except FileNotFoundError as error:
        raise InputError(f"{error.filename or path}: no such file; {name} needs it") from error
    except (MemoryError, *DAMAGE) as error:
        if is_out_of_memory(error):
            raise ResourceError(f"{path}: does not fit into memory: {error}") from error
        raise FormatError(f"{path}: cannot be read as {name}: {type(error).__name__}: {error}") from error
    twice = graph.meta.get("duplicates", 0) or graph.meta.get("official_split", {}).get("duplicates", 0)
    if options.duplicates == "refuse" and twice:
        raise FormatError(f"{path}: {twice:,} edges are duplicates of others; remove them, or omit --duplicates refuse")
    return graph
