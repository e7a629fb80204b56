"""Words over edges: sums, maxima, attention and updates of what travels along the nonzeros of A."""
