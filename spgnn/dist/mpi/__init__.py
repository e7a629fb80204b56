"""Ranks that are MPI processes. Only `mpi_communicator` imports mpi4py."""
