# shellcheck shell=bash
# Sourced by runs/cluster_test: makes mpi4py load the system's Open MPI, and the tests start it. The wheel of mpi4py
# speaks to both MPIs and is told which one by MPI4PY_LIBMPI.

if ! command -v mpirun.openmpi >/dev/null && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "installing openmpi-bin"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin; } >&2 || true
fi
SPGNN_TEST_MPIRUN="$(command -v mpirun.openmpi)" || fail "no mpirun.openmpi on PATH; apt-get install openmpi-bin"
MPI4PY_LIBMPI="$(ldconfig -p | awk '$1 == "libmpi.so.40" { print $NF; exit }')"
export SPGNN_TEST_MPIRUN MPI4PY_LIBMPI
[[ -n $MPI4PY_LIBMPI ]] || fail "no libmpi.so.40 in the cache of ldconfig; apt-get install openmpi-bin"
say "$(python -c 'from mpi4py import MPI; print(MPI.Get_library_version().split(",")[0])' 2>&1 | tail -1), $SPGNN_TEST_MPIRUN"
