"""Commands that look at runs and partitions: they run, on a smaller graph, and write what is shown next to them."""

import re
import subprocess
from pathlib import Path

import pytest
from worlds import mpirun

ROOT = Path(__file__).resolve().parents[1]
PAGES = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("performance.md", "partition.md"))
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGES, re.S) for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.mpi
def test_the_commands_run_and_write_the_files_that_are_named(python, tmp_path):
    pytest.importorskip("matplotlib")
    assert len(LINES) == 6
    for line in LINES:
        command, _, named = line.partition("#")
        command = command.replace("wordnet", "sbm:n=200,classes=3")
        command = re.sub(r"\bspgnn ", f"{python} -m spgnn ", command)
        command = command.replace("mpirun", str(mpirun())).replace("runs/", f"{python} {ROOT}/runs/")
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if "--trace" in line:
            assert {"log", "phase", "training"} <= {text.split()[0] for text in done.stderr.splitlines() if text}
        for file in re.findall(r"\S+\.(?:html|jsonl?)\b", f"{command} {named}"):
            assert (tmp_path / file).is_file(), line
    assert len(list((tmp_path / "pictures").iterdir())) == 4
