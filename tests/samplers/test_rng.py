"""Random numbers of samplers are a function of (seed, stream, index), uniform, and those of the published generators."""

import numpy as np
import pytest
from scipy.stats import chisquare

from spgnn.samplers import _samplers

MASK = 2**64 - 1


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def reference(seed, stream, index, count):
    """xoshiro256++ as its authors' C has it."""
    state, z = splitmix64(seed)
    state, z = splitmix64(z ^ stream)
    state, z = splitmix64(z ^ index)
    s, out = [], []
    state = z
    for _ in range(4):
        state, word = splitmix64(state)
        s.append(word)
    rotated = lambda x, k: ((x << k) | (x >> (64 - k))) & MASK
    for _ in range(count):
        out.append((rotated((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotated(s[3], 45)
    return out


def test_integers_are_those_of_xoshiro256():
    below = 1000  # no rejection at these draws
    expected = [((x >> 32) * below) >> 32 for x in reference(7, 1, 5, 50)]
    assert _samplers.integers(7, 1, 5, below, 50).tolist() == expected


@pytest.mark.parametrize("below", [2, 7, 1000, 2**31 + 11, 2**40 + 3])
def test_integers_are_uniform_and_in_range(below):
    drawn = _samplers.integers(3, 0, below, below, 40_000)
    assert drawn.min() >= 0 and drawn.max() < below
    counts = np.bincount((drawn / below * min(below, 50)).astype(int), minlength=min(below, 50))
    assert chisquare(counts).pvalue > 1e-4


def test_streams_and_indices_differ():
    draws = {
        tuple(_samplers.integers(seed, stream, index, 2**40, 4))
        for seed in range(4) for stream in range(4) for index in range(4)
    }  # fmt: skip
    assert len(draws) == 64
