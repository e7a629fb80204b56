"""The built-in graph: WordNet 3.0's synsets and pointers, from a packaged file that runs/build_wordnet makes.

Shapes: N synsets in file order (noun, verb, adj, adv), P typed pointers, F words, M (synset, word) pairs.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import FormatError, InputError, UsageError, nearest
from ..graph import Graph, graph_from_coo

PACKAGED = Path(__file__).parent / "wordnet" / "wordnet.npz.xz"
SHA256 = "af2feecfc0f6c0684f62e618adc00e135d88664eb10f797fe6f8c6fa116ca9d8"
# Pointer symbols of wninput(5WN): "@" hypernym, "~" hyponym, "!" antonym, "+" derivation, ...
TYPES = tuple("! #m #p #s $ %m %p %s & * + -c -r -u ;c ;r ;u < = > @ @i \\ ^ ~ ~i".split())

# Lexicographer files in the order of lexnames(5WN).
NOUNS = """Tops act animal artifact attribute body cognition communication event feeling food group location motive object
person phenomenon plant possession process quantity relation shape state substance time"""
VERBS = """body change cognition communication competition consumption contact creation emotion motion perception
possession social stative weather"""
WORDS = (*(f"noun.{name}" for name in NOUNS.split()), *(f"verb.{name}" for name in VERBS.split()))
CLASSES = ("adj.all", "adj.pert", "adv.all", *WORDS, "adj.ppl")


def load_wordnet(pointers: tuple[str, ...] | None = None, typed: bool = False) -> Graph:
    """Return WordNet: synsets, pointers as directed edges, lexicographer file as label, gloss words as X (N, F) CSR.

    Args:   pointers: the types that count, of TYPES, such as ("@", "~"); None: all.
            typed: pointers between the same synsets stay several edges, edge_attr (E, len(TYPES)) has a 1 for the type.
    Raises: UsageError for a type that does not exist; FormatError if the packaged file is damaged.
    """
    arrays = read_packaged()
    src, dst, kind = pointers_of(arrays)
    if pointers is not None:
        unknown = [p for p in pointers if p not in TYPES]
        if unknown:
            raise UsageError(f"wordnet has no pointers of type {unknown[0]!r}{nearest(unknown[0], TYPES)}")
        keep = np.isin(kind, [TYPES.index(p) for p in pointers])
        src, dst, kind = src[keep], dst[keep], kind[keep]
    n, word_counts = len(arrays["labels"]), arrays["word_counts"]
    nodes = unpack(arrays["word_gaps"], word_counts, 0)
    indptr = np.concatenate([[0], np.cumsum(word_counts)])
    X = sp.csc_array((np.ones(len(nodes), np.float32), nodes, indptr), shape=(n, len(word_counts))).tocsr()
    fields: dict[str, Any] = {"X": X, "y": arrays["labels"].astype(np.int64), "split": arrays["split"]}
    if typed:
        fields |= {"edge_attr": np.eye(len(TYPES), dtype=np.float32)[kind], "meta": {"edge_features": list(TYPES)}}
    return graph_from_coo(src, dst, n, name="wordnet", classes=CLASSES, **fields)


def pointers_of(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return src and dst (P,) and the type of each pointer, (P,) uint8 index into TYPES."""
    counts = arrays["pointer_counts"]
    nodes = np.arange(len(counts))
    return np.repeat(nodes, counts), unpack(arrays["pointer_gaps"], counts, nodes), arrays["pointer_types"]


def read_packaged(path: Path = PACKAGED) -> dict[str, np.ndarray]:
    """Return the packaged arrays, checked by SHA-256; `words` (F,) names the columns of X.

    Raises: FormatError if they are not the ones that this version was made with.
    """
    try:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; install spgnn again") from error
    except (lzma.LZMAError, zipfile.BadZipFile, ValueError, EOFError) as error:
        raise FormatError(f"{path}: damaged: {error}; install spgnn again") from error
    if digest(arrays) != SHA256:
        raise FormatError(f"{path}: SHA-256 of the arrays is {digest(arrays)}, expected {SHA256}; install spgnn again")
    return arrays


def digest(arrays: dict[str, np.ndarray]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and values, 64 hex digits."""
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def unpack(planes: np.ndarray, counts: np.ndarray, base) -> np.ndarray:
    """Return the values of groups, (E,) int64, from gaps between them, each group's first from base.

    Args: planes (4, E) uint8, the bytes of int32 gaps apart; counts (G,) sizes of the groups; base (G,) or one for all.
    """
    gaps = np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.int64)
    counts = counts.astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(gaps)])
    before = sums[np.cumsum(counts) - counts]
    return sums[1:] + np.repeat(np.broadcast_to(base, counts.shape) - before, counts)
