"""What a process gives back of its memory."""

import platform

import pytest
from command_line import in_python

# Arrays that the allocator keeps once they are freed, as one that stays lies behind them.
KEEPS = """
import numpy as np
from spgnn.machine import give_back_memory, rss_bytes
arrays = [np.ones(7_500) for _ in range(2_000)]
del arrays[:-1]
kept = rss_bytes()
give_back_memory()
print(kept - rss_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")
def test_freed_memory_goes_back_to_the_system():
    assert int(in_python(KEEPS, MALLOC_MMAP_THRESHOLD_=str(1 << 25)).stdout) > 80e6


@pytest.mark.parametrize("given, expected", [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_torch_asks_for_huge_pages_unless_it_is_told_not_to(given, expected, monkeypatch):
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    line = "import os, spgnn; print(os.environ['THP_MEM_ALLOC_ENABLE'])"
    assert in_python(line, **given).stdout.strip() == expected
