"""What all files of this folder share."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Let files stay in the page cache: no test cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
