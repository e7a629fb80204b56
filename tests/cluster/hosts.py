"""on_hosts: run a command on hosts that are namespaces of this machine."""

from worlds import ROOT, Launched, launch

WITH_HOSTS = ROOT / "runs" / "cluster" / "with_hosts"


def on_hosts(
    command, *, hosts: int = 2, rate: str = "1gbit", slurm: bool = False, limit_s: float = 120, **env: str
) -> Launched:
    """Run command on the first of some hosts; see runs/cluster/with_hosts."""
    options = ["--hosts", hosts, "--rate", rate, *(["--slurm"] if slurm else [])]
    return launch(0, [WITH_HOSTS, *options, "--", *command], limit_s=limit_s, env=env)


def ok(ended: Launched) -> Launched:
    """Return ended; fail with its output unless it ended well and left nothing."""
    assert (ended.code, ended.is_late, ended.left) == (0, False, []), f"{ended.out}\n{ended.err}"
    return ended
