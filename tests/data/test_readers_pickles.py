"""The restricted unpickler gives numbers, containers and arrays, and executes nothing."""

import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import scipy.sparse as sp
import tiny_files as tiny
from hypothesis import given
from hypothesis import strategies as st

from spgnn.data.readers.pickles import load_pickle
from spgnn.data.readers.planetoid import read_planetoid
from spgnn.errors import FormatError


def loaded(tmp_path, raw: bytes):
    path = tmp_path / "value.pkl"
    path.write_bytes(raw)
    return load_pickle(path)


class Call:
    """Pickles to a call of function(*args)."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_of_anything_else_is_refused_by_name_and_not_executed(tmp_path, protocol):
    marker = tmp_path / "executed"
    with pytest.raises(FormatError, match=r"(posix|nt)\.system.*not executed"):
        loaded(tmp_path, pickle.dumps(Call(os.system, f"touch {marker}"), protocol))
    with pytest.raises(FormatError, match="eval.*not executed"):
        loaded(tmp_path, pickle.dumps(Call(eval, f"open({str(marker)!r}, 'w')"), protocol))
    assert not marker.exists()


def test_a_hidden_call_in_a_planetoid_file_is_refused(tmp_path):
    prefix = tiny.write_planetoid(tmp_path)
    marker = tmp_path / "executed"
    (tmp_path / "ind.tiny.y").write_bytes(pickle.dumps([np.zeros(2), Call(os.mkdir, str(marker))], 2))
    with pytest.raises(FormatError, match="ind.tiny.y: byte .*mkdir"):
        read_planetoid(prefix)
    assert not marker.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "<f4", "u1", "?", "<f2"])
def test_arrays_come_back_as_they_were(tmp_path, protocol, dtype):
    for value in (
        np.arange(6).reshape(2, 3).astype(dtype),
        np.asfortranarray(np.arange(6).reshape(3, 2).astype(dtype)),
        np.zeros(0, dtype),
    ):
        back = loaded(tmp_path, pickle.dumps(value, protocol))
        np.testing.assert_array_equal(back, value)
        assert back.dtype == value.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    "value", [{1: [2, 3]}, defaultdict(list, {5: []}), OrderedDict(a=1), [1, (2, 3), -1.5, None, True], 2**70, ()]
)
def test_containers_and_numbers_come_back_as_they_were(tmp_path, value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert loaded(tmp_path, pickle.dumps(value, protocol)) == value


def test_numpy_scalars_come_back_as_numbers(tmp_path):
    assert loaded(tmp_path, pickle.dumps([np.int64(7), np.float32(0.5)], 2)) == [7, 0.5]


def test_arrays_of_objects_and_text_are_refused(tmp_path):
    for value in (np.array([{}, None], object), np.array(["a"]), np.zeros(1, [("x", "i4")])):
        with pytest.raises(FormatError, match="only numbers"):
            loaded(tmp_path, pickle.dumps(value, 2))


def test_other_classes_are_refused(tmp_path):
    for value in (sp.csc_matrix((2, 2)), np.random.default_rng(0), Exception("x")):
        with pytest.raises(FormatError, match="are taken"):
            loaded(tmp_path, pickle.dumps(value, 2))


@pytest.mark.parametrize("raw", [
    b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo place that the C unpickler makes 32 GB for
    b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.",  # a bytearray of 1 TiB
    b"\x80\x02T\xff\xff\xff\x7fabc.",
    b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
    b"\x80\x04\x95" + struct.pack("<Q", 1 << 50) + b"N.",
    b"(" * 1000 + b".",
    b"I" + b"9" * 5000 + b"\n.",
])  # fmt: skip
def test_what_a_pickle_declares_allocates_nothing(tmp_path, raw):
    tracemalloc.start()
    try:
        loaded(tmp_path, raw)
    except FormatError as error:
        assert "damaged" in str(error) or "cut off" in str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_an_array_that_declares_more_than_its_bytes_is_refused(tmp_path):
    raw = pickle.dumps(np.zeros(3, np.int8), 2).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    with pytest.raises(FormatError, match="3 bytes for an array"):
        loaded(tmp_path, raw)


def test_a_key_whose_hash_takes_for_ever_is_refused(tmp_path):
    nested = ()
    for _ in range(64):
        nested = (nested, nested)
    with pytest.raises(FormatError, match="tuple as a key"):
        loaded(tmp_path, b"\x80\x02}" + pickle.dumps(nested, 2)[2:-1] + b"Ns.")


def test_neighbour_lists_shared_to_blow_up_are_refused(tmp_path):
    prefix = tiny.write_planetoid(tmp_path)
    shared = list(range(1000))
    (tmp_path / "ind.tiny.graph").write_bytes(pickle.dumps(dict.fromkeys(range(1000), shared), 2))
    with pytest.raises(FormatError, match="1000000 neighbours in"):
        read_planetoid(prefix)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_format_error(tmp_path_factory, raw):
    try:
        loaded(tmp_path_factory.mktemp("any"), b"\x80\x02" + raw)
    except FormatError:
        pass


@pytest.mark.slow
@given(
    st.recursive(
        st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none(),
        lambda x: st.lists(x) | st.dictionaries(st.integers(), x),
    )
)
def test_any_plain_value_comes_back_as_it_was(tmp_path_factory, value):
    assert loaded(tmp_path_factory.mktemp("any"), pickle.dumps(value, 2)) == value
