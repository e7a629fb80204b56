"""Modules of torch and PyG as layers: their edge_index is a handle of the graph, and reading rows by it exchanges them."""
