"""One reader per format, from published files to a Graph; each registers itself."""

from . import (  # noqa: F401
    binary,
    dimacs,
    edges,
    gnn_benchmark,
    graphsaint,
    heterophilous,
    metis,
    mtx,
    ogb,
    planetoid,
    scipy_npz,
)
