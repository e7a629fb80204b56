"""Rows on the wire come back within the format's error."""

import warnings

import numpy as np
import pytest
import torch

from spgnn.errors import ShapeError, UsageError
from spgnn.spmm.exchange.wire import Wire
from spgnn.spmm.kernels import _kernels

ISAS = _kernels.instruction_sets()
LOSSY = ["bfloat16", "float16"]
SHARE = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a number that its rounding may cost


def there_and_back(wire, rows, dtype=None):
    sent = torch.empty(rows.shape[0], wire.row_bytes(rows.shape[1], rows.element_size()), dtype=torch.uint8)
    wire.encode(rows, sent)
    return wire.decode(sent, torch.empty(rows.shape, dtype=dtype or rows.dtype))


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("F", [1, 3, 16, 41, 300])
def test_rows_come_back_within_the_error_of_the_format(name, dtype, F):
    generator = torch.Generator().manual_seed(F)
    rows = (torch.randn(70, F, generator=generator) * torch.logspace(-3, 3, 70)[:, None]).to(dtype)
    back = there_and_back(Wire(name), rows).double()
    bound = rows.double().abs() * SHARE[name] + 2.0**-25
    if dtype == torch.bfloat16:  # rounded once more when it is written
        bound = bound + back.abs() * 2.0**-8
    assert ((back - rows.double()).abs() <= bound * 1.00001).all()
    assert torch.equal(there_and_back(Wire("bfloat16"), rows.bfloat16()), rows.bfloat16())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LOSSY)
def test_all_numbers_of_a_format_and_those_between_are_rounded_as_torch_does(isa, name):
    dtype = getattr(torch, name)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    own = torch.from_numpy(patterns.view(np.int16)).view(dtype).float().numpy()
    own = own[np.isfinite(own)]
    with np.errstate(over="ignore"):
        scaled = [own * np.float32(factor) for factor in (1, 1.0004883, 1.5)]
    between = np.concatenate([np.nextafter(own, np.float32(4)), np.nextafter(own, -np.float32(4)), *scaled])
    expected = torch.from_numpy(between).to(dtype).float().numpy()
    if name == "float16":  # what is finite stays finite
        expected = np.clip(expected, -65504, 65504)
    sent, back = np.empty((1, 2 * len(between)), np.uint8), np.empty((1, len(between)), np.float32)
    _kernels.encode(name, between[None], sent, 1, isa)
    _kernels.decode(name, sent, back, 1, isa)
    np.testing.assert_array_equal(back[0], expected)


@pytest.mark.parametrize("most, is_cut", [(65504.0, False), (65537.0, True), (-7e9, True)])
def test_rows_beyond_float16_are_cut_off_with_a_word(most, is_cut):
    rows = torch.tensor([[1.0, most]])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        back = there_and_back(Wire("float16"), rows)
    assert [("65,504" in str(word.message)) for word in said] == [True] * is_cut
    assert torch.equal(back, rows.clamp(-65504, 65504))


@pytest.mark.parametrize("name", LOSSY)
def test_rows_of_zeros_tiny_numbers_nan_and_infinity(name):
    rows = torch.zeros(5, 9)
    rows[1] = 1e-42
    rows[2, 4], rows[3, 2] = float("nan"), float("-inf")
    rows[4] = torch.arange(9.0)
    back = there_and_back(Wire(name), rows)
    assert (back[:2].abs() <= 1e-42).all()
    assert back[2].isnan().sum() == 1 and back[3, 2] == float("-inf") and back[3].isfinite().sum() == 8
    torch.testing.assert_close(back[4], rows[4], atol=0, rtol=2.0**-8)


def test_wires_know_their_bytes_and_refuse_what_does_not_fit():
    assert [Wire(name).row_bytes(10, 8) for name in ("float32", *LOSSY)] == [80, 20, 20]
    assert Wire("float32").is_plain and not any(Wire(name).is_plain for name in LOSSY)
    with pytest.raises(UsageError, match="did you mean 'bfloat16'"):
        Wire("bfloat")
    rows = torch.ones(3, 4)
    with pytest.raises(ShapeError, match=r"expected \(3, 8\)"):
        Wire("float16").encode(rows, torch.empty(3, 4, dtype=torch.uint8))
    with pytest.raises(UsageError, match="is_plain"):
        Wire("float32").decode(torch.empty(3, 16, dtype=torch.uint8), rows)
