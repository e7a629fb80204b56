"""Partitions on disk: folders that ranks load their own part from, and the out-of-core pipeline."""
