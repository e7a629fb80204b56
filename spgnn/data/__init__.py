"""From files, other libraries and generators to a Graph, and the native folder."""

from . import readers  # noqa: F401  they register the formats
from .arrays import from_coo, from_dgl, from_networkx, from_petsc, from_pyg, from_scipy
from .formats import detect_format, known_formats, read_graph, reader
from .gallery import GALLERY, generate
from .load import BUILT_IN, File, Named, is_built_in, load_graph, resolve
from .native import load_native
from .readers.h5ad import from_anndata
from .readers.mesh import from_meshio
from .save import check, convert, report, save_graph
from .tables import from_pandas
from .wordnet import load_wordnet

__all__ = [
    "BUILT_IN", "GALLERY", "File", "Named", "check", "convert", "detect_format", "from_coo", "from_dgl",
    "from_anndata",
    "from_meshio",
    "from_networkx", "from_pandas", "from_petsc", "from_pyg", "from_scipy", "generate", "is_built_in", "known_formats", "load_graph",
    "load_native", "load_wordnet", "read_graph", "reader", "report", "resolve", "save_graph",
]  # fmt: skip
