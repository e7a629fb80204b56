"""Ranks whose rows are on devices: staged through the host, by MPI on device addresses, or by NCCL."""
