"""One reader per format, from published files to a Graph; each registers itself."""

from . import (  # noqa: F401
    binary,
    dimacs,
    edges,
    graphsaint,
    h5ad,
    mesh,
    metis,
    mtx,
    npz_graphs,
    official,
    ogb,
    planetoid,
    table_folder,
)
