"""Ranks whose rows are on devices: staged through the host, or by NCCL."""
