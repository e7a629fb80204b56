"""What is written aside appears whole or not at all."""

import pytest

from spgnn.atomic import new_file, new_folder
from spgnn.errors import ResourceError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_takes_its_name_when_the_block_ends_well(tmp_path):
    for text in ("one", "two"):
        with new_folder(tmp_path / "out") as aside:
            (aside / "a").write_text(text)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a").read_text() == "two"


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    with new_folder(tmp_path / "out") as aside:
        (aside / "a").write_text("one")
    with pytest.raises(ValueError), new_folder(tmp_path / "out") as aside:
        (aside / "b").write_text("half")
        raise ValueError
    with pytest.raises(ValueError), new_file(tmp_path / "f.txt") as aside:
        aside.write_text("half")
        raise ValueError
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["a"]


def test_a_file_replaces_the_old_one_and_keeps_its_ending(tmp_path):
    for text in ("one", "two"):
        with new_file(tmp_path / "f.npy") as aside:
            assert aside.suffix == ".npy"
            aside.write_text(text)
    assert names(tmp_path) == ["f.npy"] and (tmp_path / "f.npy").read_text() == "two"


def test_a_place_that_cannot_be_written_is_a_resource_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"), new_folder(tmp_path / "file" / "out"):
        pass
