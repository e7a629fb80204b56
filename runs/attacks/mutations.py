"""Ways to break a file, by what kind of file it is; runs/attacks/mutated_files.py draws from them.

A mutation takes (raw bytes, rng) and returns bytes.
"""

import gzip
import io
import pickletools
import struct
import zipfile
from pathlib import Path

import numpy as np

NUMBERS = [b"0", b"-1", b"1", b"7", b"100000000", b"300000000", b"999999999", b"3000000000", b"999999999999", b"123456789012345678",
           b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807", b"18446744073709551616",
           b"1" + b"0" * 30, b"1" + b"0" * 5000, b"nan", b"inf", b"-inf", b"1e400", b"0.5", b"1e-320", b"x", b"", b"NaN", b"null",
           b"[]", b"true", b"0x10", b"1_0", b"\xd9\xa3"]  # fmt: skip
EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31), 2**16, 10**6, 2**24]
MALICIOUS = b"cos\nmkdir\n(S'%s'\ntR."
NAMES = [
    b"cos\nsystem\n",
    b"c__builtin__\neval\n",
    b"cnumpy\nload\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cscipy.sparse.csr\ncsr_matrix\n",
]


def mutate_case(home: Path, form: str, rng, marker: Path, files: list[Path] | None = None) -> tuple[str, bool]:
    """Break one or two files; return (what was done, whether a checksum must have noticed or nothing changed).

    Args: files  those to break; default: all under home.
    """
    files = files or sorted(p for p in home.rglob("*") if p.is_file())
    if len(files) > 1 and rng.random() < 0.06:
        return _break_folder(files, rng), False
    file = files[rng.integers(len(files))]
    kind, mutations = _mutations(file, form, marker)
    name, mutate, keeps = mutations[rng.integers(len(mutations))]
    file.write_bytes(mutate(file.read_bytes(), rng))
    done = f"{file.name}: {kind} {name}"
    if rng.random() < 0.2:
        file = files[rng.integers(len(files))]
        name, mutate = BYTES[rng.integers(len(BYTES))]
        file.write_bytes(mutate(file.read_bytes() or b"\0", rng))
        done, keeps = f"{done}, {file.name}: {name}", False
    return done, keeps


def _mutations(file: Path, form: str, marker: Path):
    """Return (kind, [(name, mutation, is it seen by a checksum)])."""
    raw = file.read_bytes()[:4]
    text = [
        ("number", _number), ("header", _header), ("lines", _lines), ("separator", _separator),
        ("declared", _declared), ("declared", _declared),
    ]  # fmt: skip
    if raw[:2] == b"\x1f\x8b":
        inside = [(name, _regzip(mutate), False) for name, mutate in BYTES[:5] + text * 2]
        # A flip may hit gzip's own header, where nothing of the text changes; the text itself is held by its CRC.
        return "gzip", inside + [(name, mutate, name in ("flip", "zero", "extreme")) for name, mutate in BYTES]
    if raw == b"PK\x03\x04":
        members = [(name, _rezip(mutate), False) for name, mutate in BYTES[:7]]
        members += [("npy header", _rezip(_npy_header), False)] * 3 + [("members", _zip_members, False)] * 2
        members += [("zip fields", _zip_fields, False)] * 2
        return "zip", members + [(name, mutate, False) for name, mutate in BYTES]
    if raw == b"\x93NUM":
        return "npy", [(n, m, False) for n, m in [*BYTES, ("npy header", _npy_header), ("npy header", _npy_header)]]
    if form == "planetoid" and not file.name.endswith("test.index"):
        special = [("opcode", _opcode), ("names", _pickle_names), ("huge", _pickle_huge), ("opcode", _opcode)]
        special += [("call", lambda raw, rng: _pickle_call(raw, rng, marker))] * 2
        return "pickle", [(n, m, False) for n, m in [*BYTES, *special]]
    if form == "binary":
        return "binary", [(n, m, False) for n, m in BYTES]
    return "text", [(n, m, False) for n, m in BYTES + text * 2]


def _break_folder(files, rng) -> str:
    a, b = (files[i] for i in rng.choice(len(files), 2, replace=False))
    how = rng.integers(3)
    if how == 0:
        a.unlink()
        return f"{a.name}: removed"
    if how == 1:
        a.write_bytes(b.read_bytes())
        return f"{a.name}: replaced by {b.name}"
    a.unlink()
    a.mkdir()
    return f"{a.name}: a folder instead"


def _span(raw, rng):
    start = int(rng.integers(len(raw) + 1))
    return start, min(len(raw), start + int(rng.integers(1, 2 + min(len(raw), 4096))))


def _flip(raw, rng):
    out = bytearray(raw)
    for _ in range(rng.integers(1, 9)):
        out[rng.integers(len(out))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def _truncate(raw, rng):
    return raw[: rng.integers(len(raw))]


def _delete(raw, rng):
    start, stop = _span(raw, rng)
    return raw[:start] + raw[stop:]


def _duplicate(raw, rng):
    start, stop = _span(raw, rng)
    return raw[:stop] + raw[start:stop] * int(rng.integers(1, 5)) + raw[stop:]


def _insert(raw, rng):
    start, _ = _span(raw, rng)
    return raw[:start] + rng.bytes(int(rng.integers(1, 64))) + raw[start:]


def _zero(raw, rng):
    start, stop = _span(raw, rng)
    return raw[:start] + bytes([int(rng.choice([0, 255]))]) * (stop - start) + raw[stop:]


def _extreme(raw, rng):
    size, code = [(4, "<i"), (8, "<q"), (2, "<h")][rng.integers(3)]
    start = int(rng.integers(max(1, len(raw) - size)))
    value = int(rng.choice(EXTREMES))
    return raw[:start] + struct.pack(code, value if size > 2 else value % 2**15) + raw[start + size :]


def _swap(raw, rng):
    (a, b), (c, d) = sorted([_span(raw, rng), _span(raw, rng)])
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:] if b <= c else raw[::-1]


def _number(raw, rng):
    """Put another number in the place of one, or flip where there is none."""
    digits = np.isin(np.frombuffer(raw, np.uint8), list(b"0123456789.-"))
    starts = np.flatnonzero(digits & ~np.concatenate([[False], digits[:-1]]))
    if not len(starts):
        return _flip(raw, rng)
    start = int(rng.choice(starts))
    stop = start + int(np.argmin(np.concatenate([digits[start:], [False]])))
    return raw[:start] + NUMBERS[rng.integers(len(NUMBERS))] + raw[stop:]


def _header(raw, rng):
    """Edit one of the first three lines."""
    lines = raw.split(b"\n", 3)
    place = int(rng.integers(min(3, len(lines))))
    lines[place] = [_number, _number, _number, _flip, _delete, _duplicate][rng.integers(6)](lines[place] or b"0", rng)
    return b"\n".join(lines)


def _declared(raw, rng):
    """Put another size in the place of one of the first line that holds nothing but sizes, or `Nodes: N Edges: E`."""
    lines = raw.split(b"\n", 4)
    sizes = [i for i, line in enumerate(lines[:4]) if line[:1].isdigit() or b"Nodes:" in line]
    if sizes:
        lines[sizes[0]] = _number(lines[sizes[0]], rng)
    return b"\n".join(lines)


def _lines(raw, rng):
    """Drop, repeat or move lines."""
    lines = raw.split(b"\n")
    i, j = rng.integers(len(lines), size=2)
    how = rng.integers(3)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines[i:i] = [lines[j]] * int(rng.integers(1, 100))
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def _separator(raw, rng):
    old, new = (bytes([b]) for b in rng.choice(list(b" \t,\n\r;:\0"), 2))
    return raw.replace(old, new, int(rng.integers(1, 1000)))


def _regzip(mutate):
    return lambda raw, rng: gzip.compress(mutate(gzip.decompress(raw), rng), mtime=0)


def _rezip(mutate):
    """Mutate the contents of one member, checksums made right again."""

    def change(raw, rng):
        with zipfile.ZipFile(io.BytesIO(raw)) as old:
            members = [(name, old.read(name)) for name in old.namelist()]
        chosen = int(rng.integers(len(members)))
        return _zipped([(name, mutate(data, rng) if i == chosen else data) for i, (name, data) in enumerate(members)])

    return change


def _zip_members(raw, rng):
    """Drop, rename, double or exchange members."""
    with zipfile.ZipFile(io.BytesIO(raw)) as old:
        members = [(name, old.read(name)) for name in old.namelist()]
    i, j = rng.integers(len(members), size=2)
    how = rng.integers(4)
    if how == 0:
        del members[i]
    elif how == 1:
        members[i] = (["other.npy", "../data.npy", "data", members[j][0]][rng.integers(4)], members[i][1])
    elif how == 2:
        members.append(members[i])
    else:
        members[i], members[j] = (members[i][0], members[j][1]), (members[j][0], members[i][1])
    return _zipped(members)


def _zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in members:
            new.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _zip_fields(raw, rng):
    """Set a field of an entry: flags, method, time, checksum, sizes, offset."""
    entries = [i for i in range(len(raw)) if raw.startswith((b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04"), i)]
    start = int(rng.choice(entries)) + int(rng.choice([6, 8, 10, 12, 16, 20, 24, 28, 42]))
    return raw[:start] + struct.pack("<I", int(rng.choice(EXTREMES)) % 2**32) + raw[start + 4 :]


def _npy_header(raw, rng):
    """Edit the text of an .npy header, its length kept right."""
    length = struct.unpack("<H", raw[8:10])[0]
    text, rest = raw[10 : 10 + length], raw[10 + length :]
    how = rng.integers(4)
    if how == 0:
        text = _number(text, rng)
    elif how == 1:
        kinds = [
            b"'|O'", b"'<f2'", b"'<i8'", b"'>f4'", b"'<U9999'", b"'|V8'", b"'<c16'", b"'|b1'", b"'<f16'",
            b"[('a','<i4')]", b"'<M8[s]'",
        ]  # fmt: skip
        text = text.replace(text.split(b"'descr': ")[1].split(b",")[0], kinds[rng.integers(len(kinds))])
    elif how == 2:
        shapes = [
            b"()", b"(0,)", b"(-1,)", b"(99999999999,)", b"(1, 0)", b"(4294967296, 4294967296)", b"(2,2,2)", b"[7]",
            b"(True,)",
        ]  # fmt: skip
        shape = text[text.index(b"(") : text.index(b")") + 1]
        text = text.replace(shape, shapes[rng.integers(len(shapes))])
    else:
        text = _flip(text, rng)
    text = text.rstrip() + b"\n"
    return raw[:8] + struct.pack("<H", len(text)) + text + rest


def _positions(raw):
    return [position for _, _, position in pickletools.genops(raw)]


def _opcode(raw, rng):
    """Put other opcodes in the place of some."""
    out, codes = bytearray(raw), [ord(op.code) for op in pickletools.opcodes]
    for position in rng.choice(_positions(raw), int(rng.integers(1, 4))):
        out[position] = codes[rng.integers(len(codes))]
    return bytes(out)


def _at_opcode(raw, rng, new):
    position = int(rng.choice(_positions(raw)))
    return raw[:position] + new + raw[position:]


def _pickle_names(raw, rng):
    return _at_opcode(raw, rng, NAMES[rng.integers(len(NAMES))])


def _pickle_huge(raw, rng):
    """Insert an opcode that declares gigabytes."""
    huge = [b"r\xff\xff\xff\x7f", b"T\xff\xff\xff\x7f", b"\x96" + struct.pack("<Q", 1 << 40), b"\x8b\xff\xff\xff\x7f", b"p999999999999\n",
            b"\x8e" + struct.pack("<Q", 1 << 40), b"\x95" + struct.pack("<Q", 1 << 50), b"(" * 1000, b"]" * 1000, b"I" + b"9" * 5000 + b"\n"]  # fmt: skip
    return _at_opcode(raw, rng, huge[rng.integers(len(huge))])


def _pickle_call(raw, rng, marker):
    """Insert a call that would make the folder marker."""
    call = MALICIOUS % str(marker).encode()
    return call if rng.random() < 0.3 else _at_opcode(raw, rng, call[:-1] if rng.random() < 0.7 else call[:-1] + b"0")


BYTES = [("flip", _flip), ("truncate", _truncate), ("delete", _delete), ("duplicate", _duplicate), ("insert", _insert),
         ("zero", _zero), ("extreme", _extreme), ("swap", _swap), ("empty", lambda raw, rng: b"")]  # fmt: skip
