"""SelfCommunicator: one rank, alone; every collective is a copy or nothing."""

from __future__ import annotations

from .base import BaseCommunicator, Done, copy_own_rows


class SelfCommunicator(BaseCommunicator):
    """The world of a process that no launcher started."""

    def __init__(self):
        super().__init__(0, 1)

    def _reduce(self, head, x, op, wait):
        return Done()

    def _exchange(self, head, send, send_rows, recv, recv_rows, wait):
        copy_own_rows(send, send_rows, recv, recv_rows, 0)
        return Done()

    def _gather(self, head, x):
        return x.copy(), [len(x)]

    def _broadcast(self, head, x, root):
        return None

    def _meet(self, head):
        return None

    def _split(self, head, color, key):
        if color is None:
            return None
        part = SelfCommunicator()
        part.traffic = type(self.traffic)(1, parent=self.traffic, peers=[0])
        return part
