"""The distributed operator: its words, its norms, its input, operators of subgraphs and of snapshots."""
