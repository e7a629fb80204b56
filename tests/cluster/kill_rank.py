"""Run a launch, kill one rank of it by SIGKILL once it trains, and end with the launch's exit code.

python kill_rank.py RANK METRICS COMMAND...    METRICS is the metrics.jsonl that the launch writes.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EPOCHS, LIMIT_S = 2, 60


def pid_of(rank: int) -> int | None:
    """Return the process of a rank of `spgnn train`; all hosts share one process namespace."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_rank = f"PMI_RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if is_rank and b"spgnn\0train\0" in (folder / "cmdline").read_bytes():
                return int(folder.name)
        except OSError:
            continue
    return None


def main() -> None:
    rank, metrics, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    launched = subprocess.Popen(command)
    start = time.monotonic()
    while time.monotonic() - start < LIMIT_S and launched.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= EPOCHS:
            os.kill(pid_of(rank), signal.SIGKILL)
            killed_s = time.monotonic()
            code = launched.wait()
            print(f"ended {time.monotonic() - killed_s:.1f} s after the kill", flush=True)
            sys.exit(code)
        time.sleep(0.05)
    sys.exit("no rank could be killed: the launch did not train")


if __name__ == "__main__":
    main()
