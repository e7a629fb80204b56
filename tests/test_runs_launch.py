"""The scripts of runs/launch and runs/cluster: valid, of no one machine, and started with the right numbers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ("runs/launch/mpirun", "runs/launch/hosts", "runs/launch/slurm", "runs/launch/torchrun")


@pytest.fixture
def started(tmp_path):
    """run(script, *arguments, **environment): what the script asks mpirun or srun for, as words."""
    for name in ("mpirun", "srun", "torchrun"):
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
        (tmp_path / name).chmod(0o755)

    def run(script, *arguments, **environment):
        env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"} | environment
        done = subprocess.run(
            [ROOT / script, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_mpirun_starts_ranks(started):
    assert started("runs/launch/mpirun", "g", RANKS="6")[:5] == ["mpirun", "-n", "6", "spgnn", "train"]


def test_torchrun_starts_the_ranks_of_a_host_which_finds_the_others_at_its_head(started):
    words = started("runs/launch/torchrun", "g", RANKS_PER_HOST="3")
    assert words[:7] == ["torchrun", "--standalone", "--nproc-per-node", "3", "--no-python", "spgnn", "train"]
    words = started("runs/launch/torchrun", "g", HOSTS="2", HEAD="n1")
    assert {"--nnodes", "2", "--rdzv-endpoint", "n1:29500"} < set(words)


def test_the_graph_and_its_options_go_to_train(started, tmp_path):
    (tmp_path / "two").write_text("n1\nn2\n")
    for script in LAUNCH:
        words = started(script, "my/graph", "--epochs", "3", HOSTFILE="two")
        assert words[-3:] == ["my/graph", "--epochs", "3"] and "wordnet" not in words


def test_kubernetes_starts_as_many_ranks_as_its_pods_have_places():
    read = lambda name: list(yaml.safe_load_all((ROOT / f"runs/launch/kubernetes/{name}.yaml").read_text()))
    service, job = read("torchrun")
    pod, name = job["spec"]["template"]["spec"], service["metadata"]["name"]
    (container,) = pod["containers"]
    words = [*container["command"], *container["args"]]
    assert (service["kind"], job["kind"], job["spec"]["completionMode"]) == ("Service", "Job", "Indexed")
    assert pod["subdomain"] == name and service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert f"--nnodes={job['spec']['completions']}" in words and job["spec"]["parallelism"] == 2
    assert f"--master-addr={job['metadata']['name']}-0.{name}" in words
    assert words[-6:-2] == ["--no-python", "spgnn", "train", "GRAPH"]
    (mpi,) = read("mpi")
    launcher, workers = (mpi["spec"]["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
    words = launcher["template"]["spec"]["containers"][0]["args"]
    assert (mpi["apiVersion"], mpi["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert int(words[words.index("-n") + 1]) == workers["replicas"] * mpi["spec"]["slotsPerWorker"]
    for one in (pod, launcher["template"]["spec"], workers["template"]["spec"]):
        mounted = {mount["name"] for part in one["containers"] for mount in part.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in one.get("volumes", ())}


def test_hosts_counts_the_hosts_of_the_file_but_not_its_comments(started, tmp_path):
    (tmp_path / "three").write_text("# ours\nn1\nn2:8\n\n  # not yet: n4\nn3\n")
    words = started("runs/launch/hosts", "g", HOSTFILE="three", RANKS_PER_HOST="4")
    assert words[:8] == ["mpirun", "-f", "three", "-ppn", "4", "-n", "12", "spgnn"]


def test_slurm_passes_the_cpus_of_a_task_on_and_ends_with_a_dead_rank(started):
    words = started("runs/launch/slurm", "g", SLURM_CPUS_PER_TASK="7")
    assert words[0] == "srun" and {"--mpi=pmi2", "--kill-on-bad-exit=1", "--cpus-per-task=7"} < set(words)
    assert "#SBATCH --ntasks-per-node=4\n" in (ROOT / "runs/launch/slurm").read_text()


def test_slurm_requeues_a_training_that_a_signal_stopped_and_no_other(tmp_path):
    for code, requeues in ((0, False), (75, True), (3, False), (137, False)):
        (tmp_path / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@"\n')
        for name in ("srun", "scontrol"):
            (tmp_path / name).chmod(0o755)
        env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
        done = subprocess.run(
            [ROOT / "runs/launch/slurm"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (code, "requeue 17\n" if requeues else "")


@pytest.mark.parametrize("internal", ["--inside", "--one-host"])
@pytest.mark.parametrize("outside", ["", "of this machine"])
def test_with_hosts_changes_nothing_outside_its_namespaces(internal, outside):
    """`!` makes no host name: nothing is changed even where this fails."""
    env = {"PATH": os.environ["PATH"]} | ({"OUTSIDE_NET": os.readlink("/proc/self/ns/net")} if outside else {})
    done = subprocess.run(
        [ROOT / "runs/cluster/with_hosts", internal, "!", "2", "none"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4 and f"{internal} is for itself alone" in done.stderr


@pytest.mark.slow
def test_cluster_tests_are_collected_only_when_asked_for():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/cluster"]
    env = {k: v for k, v in os.environ.items() if k != "SPGNN_CLUSTER"}
    assert (
        "test_launches"
        not in subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60).stdout
    )
