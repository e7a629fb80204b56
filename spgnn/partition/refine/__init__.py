"""Refinement of partitions in C++: nodes move between parts."""
