"""Bombs, long lines, deep nesting: refused within 300 MB and 20 seconds."""

import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from attack import FAST, GRAPH, folder, here, isolated, need, within

QUICK, FULL = 256, 4096  # MB to which what is compressed unpacks
MEMORY_MB, SECONDS = 300, 20
MOST_MB = 1024  # for files just below the size from which they are refused
DEEP = 100_000


def attack(seed: int, amount: int):
    """Give each command a file that promises or holds too much; return how many were refused, and what was not."""
    failures, worst_mb, worst_s, count = [], 0.0, 0.0, 0
    with folder() as home:
        write_folders(home)
        for (name, *_), found in isolated(lambda bomb: use(home, amount, *bomb), list(bombs()), 4 * SECONDS):
            count += 1
            worst_mb, worst_s = max(worst_mb, found.get("mb", 0)), max(worst_s, found.get("seconds", 0))
            if said := found.get("crash") or found["wrong"]:
                failures.append(f"{name}: {said}")
    return {"bombs": count, "MB at most": round(worst_mb), "s at most": round(worst_s, 1)}, failures


def use(home: Path, amount: int, name: str, write, words: list[str], codes, limit_mb=MEMORY_MB) -> dict:
    """Write one bomb and run the command that reads it, in a copy of the folder."""
    shutil.rmtree(work := home.parent / "work", ignore_errors=True)  # of a case that did not end
    shutil.copytree(home, work)
    os.chdir(work)
    try:
        write(amount)
        ended, mb = within(limit_mb, lambda: here(*words))
        wrong = ended.fault(*codes)
        if not wrong and (mb > limit_mb and ended.code != 4 or ended.seconds > SECONDS):  # 4: the limit refused it
            wrong = f"{mb:.0f} MB and {ended.seconds:.1f} s, of {limit_mb} MB and {SECONDS} s"
    except MemoryError:
        return {"wrong": f"more than {limit_mb} MB"}
    finally:
        os.chdir(home)
        shutil.rmtree(work)
    return {"wrong": wrong, "mb": mb, "seconds": ended.seconds}


def write_folders(home: Path) -> None:
    """Write a graph, parts and a run, whose files bombs replace."""
    need(here("convert", GRAPH, home / "g"))
    need(here("partition", home / "g", "-k", 2, "--out", home / "p"))
    need(here("train", home / "g", *FAST, "--epochs", 2, "--checkpoint-every", 0, "--out", home / "run"))
    np.savetxt(home / "e.txt", np.arange(40).reshape(20, 2), fmt="%d")


def bombs() -> Iterator[tuple]:
    """Yield (name, how to write it, command, exit codes, MB)."""
    read = lambda path: ["info", path]
    text = lambda path, content: lambda mb: Path(path).write_text(content)
    for path, content in {
        "a.mtx": "%%MatrixMarket matrix coordinate real general\n1099511627776 1099511627776 1099511627776\n1 1 1\n",
        "b.mtx": "%%MatrixMarket matrix coordinate pattern symmetric\n9 9 999999999999\n2 1\n",
        "c.graph": "999999999999 999999999999\n2\n1\n",
        "d.gr": "p sp 999999999999 999999999999\na 1 2 1\n",
        "f.txt": "0 1\n1 999999999999\n",
    }.items():
        yield f"header of {path}", text(path, content), read(path), (3,)
    for part in ("data", "indices", "indptr"):
        yield f"npz with a large {part}", lambda mb, part=part: csr(mb, part), read("csr.npz"), (3,)
    yield "npz of one full row", full_row, ["info", "e.txt", "--features", "csr.npz"], (3,)
    yield "npy header of features", npy_header, ["info", "e.txt", "--features", "x.npy"], (3,)
    yield "gz of edges", lambda mb: gz("e.txt.gz", b"0 0\n" * (1 << 18), mb), read("e.txt.gz"), (3, 4)
    yield "gz of one line", lambda mb: gz("e.txt.gz", b"1" * (1 << 20), mb), read("e.txt.gz"), (3,)
    for words in (
        ["info", "l.txt"],
        ["partition", "l.txt", "-k", "2", "--memory", "2GB", "--method", "spring+", "--out", "q"],
    ):
        yield f"line without an end, {words[0]}", long_line, words, (3,)
    nested = "[" * DEEP
    for path, words in {
        "g/manifest.json": ["info", "g"],
        "p/manifest.json": ["check", "p"],
        "run/summary.json": ["report", "run"],
        "run/details.json": ["report", "run"],
        "run/metrics.jsonl": ["report", "run"],
        "run/env.json": ["train", "--resume", "run", "--epochs", "3"],
    }.items():
        yield f"nested {path}", text(path, nested), words, (0, 3)
    for content in (
        f"epochs = {nested}",
        f"{'a.' * DEEP}b = 1",
        f"[{'a.' * DEEP}b]",
        f"a = {'{a=' * DEEP}",
        "a" * 10**6,
    ):
        yield f"TOML {content[:12]}", text("c.toml", content), ["train", "g", "--config", "c.toml"], (2, 3)
    yield "safetensors header", safetensors, ["predict", "run", "--out", "x.npy"], (3,)
    yield "zip of many members", many_members, read("many.npz"), (3,)
    small = 31 << 20  # bytes that a file may unpack to, whatever its own size
    yield "most in a gz", lambda mb: gz("e.txt.gz", b"0 0\n" * (1 << 18), 31), read("e.txt.gz"), (0, 3), MOST_MB
    yield "most in an npz", lambda mb: csr(small >> 20, "data"), read("csr.npz"), (0, 3), MOST_MB


def gz(path: str, text: bytes, times: int) -> None:
    """Write a text times times, compressed."""
    packer = zlib.compressobj(9, wbits=31)
    Path(path).write_bytes(b"".join(packer.compress(text) for _ in range(times)) + packer.flush())


def csr(mb: int, large: str, m: int = 1) -> None:
    """Write a CSR of one row, of which one array is large: zeros of mb MB."""
    arrays = {"data": np.zeros(1, bool), "indices": np.zeros(1, np.int32), "indptr": np.array([0, 1], np.int32)}
    write_npz("csr.npz", arrays | {"shape": np.array([1, m]), "format": np.array("csr")}, mb, (large,))


def full_row(mb: int) -> None:
    """Write a CSR of 40 rows and 16 columns with all of its mb / 2 MB of nonzeros in the last row."""
    n = mb << 17
    indptr = np.zeros(41, np.int64)
    indptr[-1] = n
    rest = {"shape": np.array([40, 16]), "format": np.array("csr"), "indptr": indptr}
    arrays = rest | {"data": np.zeros(1, np.float32), "indices": np.zeros(1, np.int32)}
    write_npz("csr.npz", arrays, mb // 2, ("data", "indices"))


def write_npz(path: str, arrays: dict, mb: int, large: tuple[str, ...]) -> None:
    """Write arrays; those named are mb MB of zeros of their type."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if name not in large:
                    np.lib.format.write_array(member, array)
                    continue
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": ((mb << 20) // array.itemsize,)}
                np.lib.format.write_array_header_1_0(member, header)
                for _ in range(mb):
                    member.write(bytes(1 << 20))


def npy_header(mb: int) -> None:
    """Write features whose header promises 40 x 2^40 numbers."""
    with open("x.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (40, 1 << 40)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))


def long_line(mb: int) -> None:
    with open("l.txt", "wb") as file:
        for _ in range(min(mb, 256)):
            file.write(b"1" * (1 << 20))


def safetensors(mb: int) -> None:
    """Give all weights of a run a header of 2^62 bytes, with a manifest that agrees."""
    from hashlib import sha256

    for path in Path("run/checkpoints").glob("*/model.safetensors"):
        path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])
        manifest = json.loads((path.parent / "manifest.json").read_text())
        if "model.safetensors" in manifest.get("files", {}):
            digest = sha256(path.read_bytes()).hexdigest()
            manifest["files"]["model.safetensors"] = {"bytes": path.stat().st_size, "sha256": digest}
        (path.parent / "manifest.json").write_text(json.dumps(manifest))


def many_members(mb: int) -> None:
    with zipfile.ZipFile("many.npz", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.npy", b"")


def plant() -> None:
    """An archive is unpacked whatever its size."""
    from spgnn.data.readers import npz

    npz.FREE_BYTES = 1 << 50
