"""Partitions on disk: folders that ranks load their own part from, METIS's files, and the out-of-core pipeline."""
