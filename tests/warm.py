"""A Python that has imported torch: a process of it starts in milliseconds, for tests that start many.

    with warm_python(folder) as python:         # the path of a program that takes the arguments of python
        subprocess.run([python, "-m", "spgnn", "train", "wordnet"])

The program hands its arguments, environment, folder and open files to a server, which forks; sys.executable is the program
there, so that what starts processes of its own, mpirun too, gets them from the server. If one is killed, the other is too.
Limits of memory and cores that are set for the program do not reach the fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    "torch", "scipy.sparse.csgraph", "matplotlib.pyplot", "pymetis", "spgnn.cli", "spgnn.experiment", "spgnn.layers",
)  # fmt: skip
CLIENT = """#!{python} -IS
import json, os, socket, sys
while (number := os.open(os.devnull, os.O_RDWR)) < 3:  # mpirun closes the standard input of ranks
    pass
os.close(number)
listed = map(int, os.listdir("/proc/self/fd"))  # with that of the list
files = [number for number in listed if os.path.exists(f"/proc/self/fd/{{number}}")]
request = json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "files": files}}).encode()
os.chdir({folder!r})  # an address has at most 107 bytes
server = socket.socket(socket.AF_UNIX)
server.connect("server")
socket.send_fds(server, [len(request).to_bytes(8, "little")], files)
server.sendall(request)
status = json.loads(server.recv(64) or b"-9")
os.kill(os.getpid(), -status) if status < 0 else os._exit(status)
"""


@contextlib.contextmanager
def warm_python(folder: Path) -> Iterator[str]:
    """Yield the path of a python in a folder; its server ends with the block."""
    client = folder / "python"
    python = os.path.realpath("/proc/self/exe")  # no client of another server
    client.write_text(CLIENT.format(python=python, folder=str(folder)), encoding="utf-8")
    client.chmod(0o755)
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    words = [sys.executable, __file__, str(client)]
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        try:
            server.stdout.readline()  # it listens
            yield str(client)
        finally:
            server.terminate()


def serve(folder: Path) -> None:
    """Fork for each client; return in the fork that is to run as a process of its own."""
    for name in IMPORTED:
        __import__(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that pass exit codes on
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("server")
        listening.listen(64)
        print("listening", flush=True)
        while True:
            client, _ = listening.accept()
            if not os.fork():
                break
            client.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, *_ = socket.recv_fds(client, 8, 64)
    if not size:  # the client was killed
        os._exit(0)
    request = json.loads(client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL))
    if pid := os.fork():
        pass_on(client, pid)
    client.close()
    for file in files:  # above all numbers that they are to have
        os.dup2(file, file + 100), os.close(file)
    for file, number in zip(files, request["files"]):
        os.dup2(file + 100, number), os.close(file + 100)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    run(*request["argv"])


def pass_on(client: socket.socket, pid: int) -> None:
    """Send the exit code of a process to its client, or end the process where the client has ended."""
    ready, *_ = select.select([client, (ended := os.pidfd_open(pid))], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):  # killed meanwhile
        client.sendall(json.dumps(code).encode())
    os._exit(0)


def run(first: str, *rest: str) -> None:
    """Do what python with these arguments does: -m MODULE, -c CODE or a script."""
    sys.stdout, sys.stderr = (open(number, "w", buffering=1 if number == 2 else -1) for number in (1, 2))
    while first.startswith("-") and first not in ("-m", "-c"):  # an option, such as -I of the guard's
        first, *rest = rest
    if first in ("-m", "-c"):
        sys.argv, sys.path[0] = [first, *rest[1:]], os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True) if first == "-m" else exec(
            rest[0], {"__name__": "__main__"}
        )
    else:
        sys.argv, sys.path[0] = [first, *rest], str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    sys.executable = sys.argv[1]
    serve(Path(sys.executable).parent)
