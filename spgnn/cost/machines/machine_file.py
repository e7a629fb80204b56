"""Machine: the constants of the cost model, from a TOML file. Imports no torch.

Rates are of one rank while `ranks_per_host` of them work; `spgnn doctor --calibrate FILE` measures them.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from ...atomic import read_regular
from ...errors import InputError, UsageError, nearest
from ...machine import cache_bytes, cores, memory_bytes

FOLDER = Path(__file__).parent
LEAST, MOST = 1e-30, 1e30  # bounds of a number: the quotient of two is finite
# Rates that the ranks of a host share.
SHARED = ("gemm_float32", "gemm_bfloat16", "gemm_float64", "spmm_cached", "spmm_memory", "cache_bytes", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Equal hosts on one network, ranks placed in blocks: rank r on host r // ranks_per_host.

    Bytes, bytes/s, flop/s and seconds. `latency_s`, `bandwidth`: between hosts, of one rank;
    `card_bandwidth`: of all ranks of a host together; `local_...`: between two ranks of a host.
    `spmm_cached`, `spmm_memory`: bytes/s of dense rows that a sparse product reads from the cache and from
    memory; `stream`: bytes/s of a pass over memory; `call_s`: seconds of a call of any size; `disk`: bytes/s of the files
    of a host, which a file may leave out. `cores`: of a host, where they are known; no key of a file.
    """

    name: str
    ranks_per_host: int
    shares_cores: bool  # fewer ranks on a host then have more cores each; false for one GPU per rank
    memory_bytes: float  # of a host
    process_bytes: float  # of a rank before any graph: Python and torch, without MPI
    latency_s: float
    bandwidth: float
    card_bandwidth: float
    local_latency_s: float
    local_bandwidth: float
    gemm_float32: float
    gemm_bfloat16: float
    gemm_float64: float
    spmm_cached: float
    spmm_memory: float
    nonzero_s: float
    cache_bytes: float
    stream: float
    call_s: float
    disk: float = 1e9
    cores: int = 0

    def __post_init__(self):
        for f in KEYS:
            value = getattr(self, f.name)
            kind = {"str": str, "bool": bool, "int": int}.get(str(f.type), (int, float))
            if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
                raise InputError(f"{f.name} = {value!r}; expected {_expected(f.name, str(f.type))}")
            if isinstance(value, (int, float)) and kind is not bool and not LEAST <= value <= MOST:
                raise InputError(f"{f.name} = {value!r}; expected {_expected(f.name, str(f.type))}")

    def host_of(self, rank):
        """Return the host of a rank, or of each of an array of ranks."""
        return np.asarray(rank) // self.ranks_per_host

    def hosts(self, size: int) -> int:
        """Return the hosts that P ranks fill."""
        return -(-size // self.ranks_per_host)

    def with_ranks(self, size: int) -> Machine:
        """Return the machine for P ranks: where they do not fill a host, each has more of its cores."""
        return self.placed(min(size, self.ranks_per_host))

    def placed(self, ranks_per_host: int) -> Machine:
        """Return the machine with another number of ranks per host: they share its cores, or have a device each."""
        if ranks_per_host < 1:
            raise UsageError(f"ranks_per_host = {ranks_per_host}; expected 1 or more")
        share = self.ranks_per_host / ranks_per_host if self.shares_cores else 1.0
        changed = {name: getattr(self, name) * share for name in SHARED}
        return replace(self, ranks_per_host=ranks_per_host, nonzero_s=self.nonzero_s / share, **changed)

    @property
    def has_shared_cores(self) -> bool:
        """Whether there are more ranks on a host than cores, as far as these are known."""
        return 0 < self.cores < self.ranks_per_host

    def gemm_rate(self, itemsize: int) -> float:
        """Return the flop/s of a dense product of entries of itemsize bytes."""
        return {2: self.gemm_bfloat16, 8: self.gemm_float64}.get(itemsize, self.gemm_float32)

    def to_toml(self, comment: str = "") -> str:
        """Return the text of a machine file; load_machine reads it back."""
        lines = [f"# {line}" for line in comment.splitlines()]
        return "\n".join([*lines, *(f"{f.name} = {_toml(getattr(self, f.name))}" for f in KEYS)]) + "\n"


KEYS = tuple(f for f in fields(Machine) if f.name != "cores")


def this_host(n_cores: int = 0) -> Machine:
    """Return a host with laptop's rates per core, and the cache and memory of this one.

    Args: n_cores  of the host, one rank each; 0: the cores that this process may use.
    """
    n_cores = n_cores or cores()
    return replace(
        load_machine("laptop"), name="this host", ranks_per_host=n_cores, cores=n_cores, memory_bytes=memory_bytes(),
        cache_bytes=cache_bytes() / n_cores,
    )  # fmt: skip


def machine_names() -> list[str]:
    """Return the names of the bundled machines."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_machine(name: str | Path) -> Machine:
    """Return a bundled machine by its name, or the machine of a TOML file.

    Raises: UsageError for an unknown name; InputError naming the file and the key that is wrong.
    """
    path = FOLDER / f"{name}.toml" if str(name) in machine_names() else Path(name)
    if not path.exists():
        if str(name).endswith(".toml") or len(path.parts) > 1:
            raise InputError(f"{name}: no such file; `spgnn doctor --calibrate {name}` makes one")
        raise UsageError(
            f"machine {str(name)!r} is not known{nearest(str(name), machine_names())}; a FILE.toml of `spgnn doctor --calibrate` works too"
        )
    try:
        values = tomllib.loads(read_regular(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from None
    known = [f.name for f in KEYS]
    for key in values:
        if key not in known:
            raise InputError(f"{path}: unknown key {key!r}{nearest(key, known)}")
    if missing := [key for key in known if key not in values and key != "disk"]:
        raise InputError(f"{path}: {', '.join(missing)} missing; `spgnn doctor --calibrate FILE` writes all keys")
    try:
        return Machine(**values)
    except (InputError, OverflowError) as error:
        raise InputError(f"{path}: {error}") from None


def _expected(name: str, kind: str) -> str:
    return {"str": "a name", "bool": "true or false", "int": "an integer of 1 or more"}.get(
        kind, f"a number above 0, {LEAST:g} to {MOST:g}"
    )


def _toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
