"""A study on disk: what a program reads again (study.json, arrays.npz), and what a person opens (CSV, JSON lines).

study.json    the graph, how the study was made, what was left out
volumes.jsonl volumes.csv    an object, a line for each (k, method, scheme, replication): measure's keys and more
ranks.csv     rows sent and received and nonzeros multiplied by each rank, of each case
parts.csv     nodes and label entropy of each part, of each cut
arrays.npz    the tables behind the pictures
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..atomic import new_file, read_regular, write_text
from ..cost.pairs import summed_rows
from ..errors import InputError, ResourceError
from .json_values import SCHEME, fault_of
from .study import ENTRY_BYTES, Case, Cut, Study, sent_mb

NESTED = ("exchanges", "layers", "simulated")
COUNT, NUMBER = "a whole number", "a number"
# What a line needs before tables and pictures can be made of it: the fixed keys of `spgnn measure`.
NEEDED = (
    dict.fromkeys(
        ("n", "nnz", "total_rows", "max_send_rows", "max_recv_rows", "messages", "edge_cut", "bytes_per_epoch"), COUNT
    )
    | dict.fromkeys(("k", "replication"), "a whole number above 0")
    | {"method": "a name", "scheme": SCHEME}
    | dict.fromkeys(
        (
            "mean_send_rows",
            "max_over_mean_send",
            "replication_factor",
            "nnz_imbalance",
            "node_imbalance",
            "work_imbalance",
            "seconds",
        ),
        NUMBER,
    )
)
# What it may have.
KNOWN = {"layers": "a list of layers", "exchanges": "a list of exchanges"}
KNOWN |= dict.fromkeys(
    ("label_entropy", "label_entropy_min", "label_entropy_max", "replication_without_halo"), "a number or null"
)
# Table 2's figures, all or none.
MB = {"width": "a whole number above 0"}
MB |= dict.fromkeys(
    ("total_mb", "average_send_mb", "max_send_mb", "max_recv_mb", "sum_mb", "send_imbalance_percent"), NUMBER
)
# study.json
HEAD = {
    "graph": "an object",
    "made": "an object",
    "left_out": "an object",
    "cuts": "a list of objects of the same keys",
}
GRAPH = {"name": "a text", "n": COUNT, "nnz": COUNT, "label_entropy": "a number or null"}
MADE = {"width": "a whole number above 0"}


def save_study(found: Study, folder: str | Path) -> list[Path]:
    """Write the files of a study into a folder, each whole or not at all, and return their paths.

    Of lines of `spgnn measure`, which have no more, ranks.csv, parts.csv and arrays.npz are empty.
    Raises: ResourceError where the disk does not take them.
    """
    folder = make_folder(folder)
    lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in found.records)
    head = {"graph": found.graph, "made": found.made, "left_out": found.left_out}
    head["cuts"] = [
        {"k": cut.k, "method": cut.method, "entropy": cut.entropy, "replicas": cut.replicas} for cut in found.cuts
    ]
    columns = [
        name for name in dict.fromkeys(name for record in found.records for name in record) if name not in NESTED
    ]
    ranks = [
        (*case.key, r, *row)
        for case in found.cases
        if case.rows_PP is not None
        for r, row in enumerate(_of_ranks(case))
    ]
    written = [
        write_text(folder / "volumes.jsonl", lines),
        write_csv(
            folder / "volumes.csv", columns, ([record.get(name) for name in columns] for record in found.records)
        ),
        write_csv(
            folder / "ranks.csv",
            ("k", "method", "scheme", "replication", "rank", "rows_sent", "rows_received", "work_nonzeros"),
            ranks,
        ),
        write_csv(
            folder / "parts.csv",
            ("k", "method", "part", "nodes", "label_entropy"),
            (row for cut in found.cuts for row in _of_parts(cut)),
        ),
    ]
    with new_file(folder / "arrays.npz") as file:
        np.savez_compressed(file, **_arrays(found))
    return [
        *written,
        folder / "arrays.npz",
        write_text(folder / "study.json", json.dumps(head, indent=1, allow_nan=False) + "\n"),
    ]


def load_study(path: str | Path) -> Study:
    """Return the study of a folder that save_study wrote, or of a file of lines of `spgnn measure --json`.

    Raises: InputError naming file and line.
    """
    path = Path(path)
    if path.is_file():
        records = [_with_mb(record) for record in read_lines(path)]
        first = records[0]
        graph = {"name": path.stem, "n": first["n"], "nnz": first["nnz"], "label_entropy": None}
        return Study(graph, {"width": first["width"]}, [Case(record) for record in records])
    try:
        head = json.loads(read_regular(path / "study.json"))
        if (
            fault := fault_of(head, HEAD)
            or fault_of(head["graph"], GRAPH)
            or fault_of(head["made"], MADE, {"widths": "a list"})
        ):
            raise ValueError(f"study.json: {fault}")
        records = read_lines(path / "volumes.jsonl")
        with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
            if not arrays.files and not head["cuts"]:
                return Study(
                    head["graph"], head["made"], [Case(record) for record in records], left_out=head["left_out"]
                )
            cases = [Case(record, arrays[f"rows/{i}"], arrays[f"work/{i}"]) for i, record in enumerate(records)]
            cuts = [_cut_of(i, facts, arrays) for i, facts in enumerate(head["cuts"])]
            return Study(head["graph"], head["made"], cases, cuts, arrays["stored"], head["left_out"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: is not a whole study ({error}); make it again with runs/analysis/volumes GRAPH --out {path}"
        ) from None


def read_lines(path: Path) -> list[dict]:
    """Return the objects of a file of JSON lines of `spgnn measure`; InputError naming the first line that is not one."""
    records = []
    try:
        lines = read_regular(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        fault = fault_of(record, NEEDED, KNOWN) or ("total_mb" in record and fault_of(record, MB))
        if fault:
            raise InputError(f"{path}:{number}: {fault}; expected a line of `spgnn measure --json`")
        records.append(record)
    if not records:
        raise InputError(f"{path}: is empty; expected lines of `spgnn measure --json`")
    return records


def _with_mb(record: dict) -> dict:
    """Return a line of `spgnn measure` with Table 2's figures: the widest layer's input, float32."""
    if "total_mb" in record:
        return record
    width = max((layer["f_in"] for layer in record.get("layers", ())), default=1)
    return record | sent_mb(record, width, ENTRY_BYTES, summed_rows(record["n"], record["replication"]))


def make_folder(folder: str | Path) -> Path:
    """Return the folder, made where it is not there; ResourceError where it cannot be."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror or error}") from None
    return Path(folder)


def check_folder(folder: Path) -> None:
    """Raise ResourceError where no folder can be made, as something else stands there."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise ResourceError(f"{folder}: cannot be made: {there} is no folder")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence]) -> Path:
    """Write a CSV file, whole or not at all; None is an empty cell."""
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(header)
    writer.writerows(rows)
    return write_text(path, lines.getvalue())


def _of_ranks(case: Case) -> list[tuple[int, int, int]]:
    return list(zip(case.rows_PP.sum(axis=1).tolist(), case.rows_PP.sum(axis=0).tolist(), case.work_P.tolist()))


def _of_parts(cut: Cut) -> list[tuple]:
    entropies = [None] * cut.k if cut.entropies_k is None else cut.entropies_k.tolist()
    return [
        (cut.k, cut.method, part, nodes, entropy)
        for part, (nodes, entropy) in enumerate(zip(cut.sizes_k.tolist(), entropies))
    ]


def _arrays(found: Study) -> dict[str, np.ndarray]:
    if found.stored_BB is None:
        return {}
    arrays = {"stored": found.stored_BB}
    for i, case in enumerate(found.cases):
        arrays |= {f"rows/{i}": case.rows_PP, f"work/{i}": case.work_P}
    for i, cut in enumerate(found.cuts):
        arrays |= {f"density/{i}": cut.density_BB, f"sizes/{i}": cut.sizes_k}
        if cut.entropies_k is not None:
            arrays[f"entropies/{i}"] = cut.entropies_k
        if cut.clusters is not None:
            arrays |= {f"clusters/{i}": cut.clusters[0], f"merged/{i}": cut.clusters[1]}
    return arrays


def _cut_of(i: int, facts: dict, arrays) -> Cut:
    clusters = (arrays[f"clusters/{i}"], arrays[f"merged/{i}"]) if f"clusters/{i}" in arrays else None
    entropies_k = arrays[f"entropies/{i}"] if f"entropies/{i}" in arrays else None
    return Cut(
        facts["k"],
        facts["method"],
        entropies_k,
        facts["entropy"],
        facts["replicas"],
        arrays[f"density/{i}"],
        arrays[f"sizes/{i}"],
        clusters,
    )
