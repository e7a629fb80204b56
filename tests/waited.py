"""Checkpoints that do not depend on how fast the disk is."""

from spgnn.experiment import saving


class Waited(saving.Writing):
    """A job that has ended before the next epoch, so that each epoch has a checkpoint."""

    def __init__(self, function):
        super().__init__(function)
        self.wait()


class Killed(Exception):
    """What ends a training without a word, as far as one process can."""
