"""Which rows travel and how: index map, exchange plans, covers, stages, wires, sums over process rows."""
