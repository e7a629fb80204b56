"""resolve: what GRAPH names, a built-in graph or files of a known format; it is found once and read when needed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import TableConfig
from ..errors import InputError
from ..graph import Graph
from .formats import DEFAULTS, Progress, detect_format, known_formats, read_graph
from .gallery import GALLERY, generate
from .wordnet import load_wordnet

BUILT_IN = ("wordnet", *GALLERY)


@dataclass(frozen=True, slots=True)
class Named:
    """A built-in graph: wordnet, or a generated one such as rmat:scale=10,degree=16,seed=0."""

    spec: str

    def read(self, progress: Progress = None, options: TableConfig = DEFAULTS) -> Graph:
        graph = load_wordnet() if self.spec == "wordnet" else generate(self.spec)
        return replace(graph, meta=graph.meta | {"source": self.spec, "format": "built-in"})


@dataclass(frozen=True, slots=True)
class File:
    """A file, a folder, or the common prefix of Planetoid's files, and the name of its format."""

    path: Path
    format: str

    def read(self, progress: Progress = None, options: TableConfig = DEFAULTS) -> Graph:
        graph = read_graph(self.path, self.format, progress, options)
        return replace(graph, meta={"source": self.path.name, "format": self.format} | graph.meta)


def resolve(source: str | Path, format: str | None = None) -> Named | File:
    """Return what a name or path is; with a format it is a path. Reads no more than detecting the format takes.

    Raises: InputError for a name or path that does not exist; FormatError where the format is not clear.
    """
    if format is None and is_built_in(source):
        return Named(source)
    path = Path(source)
    try:
        str(source).encode()
    except UnicodeEncodeError:  # no config.toml could hold it
        raise InputError(f"{source!r}: the name is not valid UTF-8; rename the file") from None
    if format is not None:
        return File(path, format)
    if not path.exists() and not any(known.detect(path) for known in known_formats().values()):
        raise InputError(f"{source}: no such file or folder, and no built-in graph{_suggest(path)}")
    return File(path, detect_format(path))


def is_built_in(source) -> bool:
    """source is "wordnet" or the spec of a generated graph, not a path."""
    return isinstance(source, str) and source.partition(":")[0] in BUILT_IN


def _suggest(path: Path) -> str:
    near = path.parent if path.parent.is_dir() else Path()
    names = list(BUILT_IN) if path.parent == Path() else []
    names += [entry.name for entry in near.iterdir() if not entry.name.startswith(".")]
    match = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    if match:
        return f"; did you mean {' or '.join(repr(name) for name in match)}?"
    return f"; expected a path or one of: {', '.join(BUILT_IN)}"
