"""runs/cluster/with_hosts: hosts that MPI takes for machines, and nothing left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import WITH_HOSTS, ok, on_hosts
from worlds import ROOT

# Every rank sends 8 MB to the next, and rank 0 prints the seconds and each rank's bytes on the wire.
SEND = """
import json, time, numpy as np, spgnn
sent = lambda: int(open("/sys/class/net/eth0/statistics/tx_bytes").read())
with spgnn.world() as comm:
    x, rows = np.ones((2_000_000, 1), np.float32), np.zeros(2, np.int64)
    rows[1 - comm.rank] = len(x)
    comm.barrier()
    before, start = sent(), time.perf_counter()
    comm.all_to_all(x, rows, np.empty_like(x), rows)
    lines = comm.all_gather_json([time.perf_counter() - start, sent() - before])
    if comm.rank == 0: print(json.dumps(lines))
"""


def traces() -> dict[str, set]:
    """What with_hosts could leave: processes, mounts, networks, temporary files."""
    commands = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands[path.parent.name] = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    daemons = ("munged", "slurmctld", "slurmd", "with_hosts", "sleep infinity", "hydra_pmi_proxy")
    return {
        "processes": {pid for pid, line in commands.items() if any(d in line for d in daemons)},
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "networks": set(os.listdir("/sys/class/net")),
    }


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = traces()
    yield
    for _ in range(100):
        if traces() == before:
            return
        time.sleep(0.05)
    assert traces() == before


def test_hosts_have_names_networks_and_shared_memory_of_their_own():
    script = """
        hostname; cat /proc/sys/kernel/random/boot_id; ls /sys/class/net; touch /dev/shm/mark
        "$HYDRA_LAUNCHER_EXEC" h2 'hostname; cat /proc/sys/kernel/random/boot_id; ls /dev/shm | wc -l'
    """
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    name, boot_id, *cards, other, other_id, files = ok(on_hosts(["sh", "-c", script])).out.split()
    assert (name, other, files) == ("h1", "h2", "0") and "eth0" in cards
    assert len({here, boot_id, other_id}) == 3


@pytest.mark.parametrize("rate, megabits", [("1gbit", 1000), ("100mbit", 100)])
def test_mpi_between_hosts_goes_over_the_wire_at_its_rate(commands, rate, megabits):
    launcher = ["sh", "-c", 'exec mpirun -f "$HOSTFILE" -ppn 1 -n 2 "$@"', "sh", sys.executable, "-c", SEND]
    for seconds, n_bytes in json.loads(ok(on_hosts(launcher, rate=rate, PATH=commands)).out):
        assert 8e6 <= n_bytes <= 9e6
        assert seconds >= 0.9 * 8e6 * 8 / (megabits * 1e6)


def test_the_exit_code_is_the_command_s():
    assert on_hosts(["sh", "-c", "exit 7"]).code == 7
    assert on_hosts(["no such command"]).code == 127


def test_a_command_s_words_arrive_as_they_are():
    words = ["a  b", "'", '"', "$HOME", "*", ""]
    assert ok(on_hosts([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words])).out == f"{words}\n"


def test_what_a_command_leaves_running_ends_with_it():
    ok(on_hosts(["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 &"], slurm=True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_it_leaves_nothing(number, tmp_path):
    command = ["--slurm", "--", "sh", "-c", "trap '' INT TERM; touch up; sleep 1000"]
    process = subprocess.Popen([WITH_HOSTS, *command], cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)})
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(10)
    (tmp_path / "up").unlink()
    left = [path for path in tmp_path.iterdir() if number != signal.SIGKILL or any(path.iterdir())]
    assert left == []  # but for an empty folder after SIGKILL


def test_a_wrong_option_is_named():
    ended = subprocess.run([WITH_HOSTS, "--host", "3", "--", "true"], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2 and "--host is no option; expected --hosts N" in ended.stderr
    ended = subprocess.run([WITH_HOSTS, "--hosts", "3"], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2 and "expected -- COMMAND" in ended.stderr
