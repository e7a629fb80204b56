"""Training on the parts of a graph: averages of their weights, parts alone, and outputs layer by layer."""
