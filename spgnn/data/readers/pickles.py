"""The restricted unpickler of the Planetoid files: numbers, containers, NumPy and SciPy arrays, nothing else.

It is a small machine over pickletools.genops, not pickle.Unpickler: no opcode imports or calls anything.
A name is one of the functions below; any other is refused before it has an effect. What an
opcode allocates is bounded by the bytes that it takes from the file.
"""

from __future__ import annotations

import math
import pickletools
import re
from pathlib import Path

import numpy as np

from ...errors import FormatError
from .text import opened

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_BYTES = ("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_TEXT = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")


class Refused(ValueError):
    """What the machine refuses to do, as a message."""


class Array:
    """An ndarray that is being rebuilt; `value` once its state came."""

    value: np.ndarray | None = None


class DType:
    """A dtype that is being rebuilt: one of numbers, in one of the two byte orders."""

    def __init__(self, code):
        code = _text(code)
        if not re.fullmatch(r"[<>=|]?(b1|[iu][1248]|f[248])", code):
            raise Refused(f"an array of {code!r}; only numbers are admitted")
        self.dtype = np.dtype(code)


class PickledCsr:
    """A scipy CSR matrix that is being rebuilt; `parts` are its data, indices, indptr and shape."""

    parts: tuple | None = None


def load_pickle(path: Path):
    """Return what a pickle of arrays holds: ndarray, PickledCsr, dict, list, numbers.

    Raises: FormatError for a name that is not admitted (nothing is executed), or a damaged pickle.
    """
    with opened(path) as file:
        raw = file.read()
    stack, memo, at = [], {}, 0
    try:
        for opcode, arg, at in pickletools.genops(raw):
            if opcode.name == "STOP":
                return _finished(stack.pop())
            _step(opcode.name, arg, stack, memo)
    except Refused as error:
        raise FormatError(f"{path}: byte {at}: the pickle asks for {error}; it was not executed") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: byte {at}: damaged pickle: {str(error)[:200]}; was the file cut off?") from None
    raise FormatError(f"{path}: the pickle has no end; was the file cut off?")


def _step(name: str, arg, stack: list, memo: dict) -> None:
    """Carry out one opcode."""
    if name in _NUMBERS:
        stack.append(arg)
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[arg] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[arg])
    elif name in _BYTES:
        stack.append(arg.encode("latin-1") if isinstance(arg, str) else bytes(arg))
    elif name in _TEXT:
        stack.append(arg)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in _CONTAINERS:
        _CONTAINERS[name](stack)
    elif name == "GLOBAL":
        stack.append(_admitted(*arg.split(" ", 1)))
    elif name == "STACK_GLOBAL":
        attribute, module = _text(stack.pop()), _text(stack.pop())
        stack.append(_admitted(module, attribute))
    elif name in ("REDUCE", "NEWOBJ"):
        args, function = stack.pop(), stack.pop()
        stack.append(_call(function, args))
    elif name == "BUILD":
        state = stack.pop()
        _build(stack[-1], state)
    elif name not in ("PROTO", "FRAME"):
        raise Refused(f"opcode {name}")


def _since_mark(stack: list) -> list:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]


def _pop_tuple(count):
    def pop(stack):
        items = tuple(stack[len(stack) - count :])
        if len(items) < count:
            raise IndexError("stack is empty")
        stack[len(stack) - count :] = [items]

    return pop


def _append(stack):
    value = stack.pop()
    _as(list, stack[-1]).append(value)


def _appends(stack):
    items = _since_mark(stack)
    _as(list, stack[-1]).extend(items)


def _setitem(stack):
    value, key = stack.pop(), stack.pop()
    _as(dict, stack[-1])[_key(key)] = value


def _setitems(stack):
    items = _since_mark(stack)
    _as(dict, stack[-1]).update(zip(map(_key, items[0::2]), items[1::2], strict=True))


def _key(value):
    """Return a key of a dict; the hash of tuples that share tuples would take exponential time."""
    if not isinstance(value, (int, float, str, bytes)):
        raise TypeError(f"{type(value).__name__} as a key of a dict")
    return value


_CONTAINERS = {
    "EMPTY_LIST": lambda stack: stack.append([]), "EMPTY_DICT": lambda stack: stack.append({}),
    "LIST": lambda stack: stack.append(_since_mark(stack)),
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "DICT": lambda stack: stack.extend([{}, _MARK, *_since_mark(stack)]) or _setitems(stack), "TUPLE1": _pop_tuple(1),
    "TUPLE2": _pop_tuple(2), "TUPLE3": _pop_tuple(3), "APPEND": _append, "APPENDS": _appends, "SETITEM": _setitem,
    "SETITEMS": _setitems, "POP": lambda stack: stack.pop(), "POP_MARK": lambda stack: _since_mark(stack),
}  # fmt: skip


def _reconstruct(cls, shape, code):
    return Array()


def _reconstructor(cls, base, state):
    return cls()


def _scalar(dtype, raw):
    return np.frombuffer(_as(bytes, raw), _as(DType, dtype).dtype, count=1)[0].item()


def _frombuffer(raw, dtype, shape, order):
    array = Array()
    array.value = _filled(raw, dtype, shape, order == "F")
    return array


def _encode(text, encoding="latin1"):
    return _as(str, text).encode("latin-1")


def _dtype(code, *flags):
    return DType(code)


def _defaultdict(factory=None):
    return {}


def _empty(make):
    return lambda: make()


_ndarray, _int, _object = object(), object(), object()
_NAMES = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("scipy.sparse._csr", "csr_matrix"): PickledCsr,
    ("scipy.sparse._csr", "csr_array"): PickledCsr,
    ("collections", "defaultdict"): _defaultdict,
    ("collections", "OrderedDict"): _empty(dict),
    ("copy_reg", "_reconstructor"): _reconstructor,
    ("copyreg", "_reconstructor"): _reconstructor,
    ("_codecs", "encode"): _encode,
} | {
    (module, name): value
    for module in ("__builtin__", "builtins")
    for name, value in (
        ("list", _empty(list)),
        ("dict", _empty(dict)),
        ("bytes", _empty(bytes)),
        ("int", _int),
        ("object", _object),
    )
}
_CALLABLE = tuple(value for value in _NAMES.values() if value not in (_ndarray, _int, _object))


def _admitted(module: str, name: str):
    if (module, name) not in _NAMES:
        raise Refused(f"{module[:80]}.{name[:80]}; only NumPy and SciPy arrays, defaultdict and containers are taken")
    return _NAMES[module, name]


def _call(function, args):
    if not any(function is known for known in _CALLABLE):
        raise Refused(f"a call of {type(function).__name__}")
    return function(*_as(tuple, args))


def _build(target, state) -> None:
    """Give an array, dtype or matrix the state that the pickle holds for it."""
    if isinstance(target, DType):
        order = _text(_as(tuple, state)[1])
        target.dtype = target.dtype.newbyteorder("<" if order == "<" else ">" if order == ">" else "=")
    elif isinstance(target, Array):
        _, shape, dtype, is_fortran, raw = _as(tuple, state)
        target.value = _filled(raw, dtype, shape, is_fortran)
    elif isinstance(target, PickledCsr):
        state = {_text(key): value for key, value in _as(dict, state).items()}
        shape = state["_shape"] if "_shape" in state else state["shape"]
        arrays = [_finished(_as(Array, state[name])) for name in ("data", "indices", "indptr")]
        target.parts = (*arrays, _sizes(shape))
    else:
        raise Refused(f"a state for {type(target).__name__}")


def _filled(raw, dtype, shape, is_fortran) -> np.ndarray:
    """Return the array of these bytes, if their number fits shape and dtype."""
    dtype, shape = _as(DType, dtype).dtype, _sizes(shape)
    if math.prod(shape) * dtype.itemsize != len(_as(bytes, raw)):
        raise ValueError(f"{len(raw)} bytes for an array {dtype} {shape}")
    array = np.frombuffer(raw, dtype).reshape(shape, order="F" if is_fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _sizes(shape) -> tuple:
    """Return a shape of at most 32 sizes, each of 62 bits."""
    sizes = tuple(_as(int, size) for size in _as(tuple, shape))
    if len(sizes) > 32 or not all(0 <= size < 2**62 for size in sizes):
        raise ValueError("a shape that no array has")
    return sizes


def _finished(value):
    """Return the array of an Array whose state came; anything else as it is."""
    if not isinstance(value, Array):
        return value
    if value.value is None:
        raise ValueError("an array without contents")
    return value.value


def _text(value) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else _as(str, value)


def _as(kind: type, value):
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where {kind.__name__} was expected")
    return value
