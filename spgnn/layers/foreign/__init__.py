"""Modules of torch and PyG as they are: their edge_index is a handle of the graph, which exchanges rows where they are read."""
