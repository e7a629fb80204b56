"""Refinement of partitions in C++: volume/ moves nodes, flow/ redraws the border of two parts."""
