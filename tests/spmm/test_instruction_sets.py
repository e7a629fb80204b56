"""What is compiled for AVX2 and AVX-512 is called through its own namespace only."""

import shutil
import subprocess
from pathlib import Path

import pytest

OBJECTS = sorted(Path(__file__).parents[2].glob("build/objects/*/spgnn.spmm.kernels.loops.*_ISA[12]*.o"))


@pytest.mark.skipif(not OBJECTS or not shutil.which("nm"), reason="no objects of this checkout, or no nm")
def test_the_linker_shares_no_function_of_a_newer_instruction_set():
    """A weak std:: function of these objects could replace the one that all others call, on any processor."""
    weak = [
        line
        for path in OBJECTS
        for line in subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
        if line[17:18] in "Wu" and not line[19:].split("<")[0].split("(")[0].split()[-1].startswith("spgnn::avx")
    ]
    assert not weak
