"""A communicator over pipes of multiprocessing, in six methods: copy it to start one. As a script it trains on 3 ranks."""

import multiprocessing

import numpy as np

import spgnn
from spgnn.dist import Traffic, headers
from spgnn.dist.base import BaseCommunicator, Done
from spgnn.errors import RankError

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class PipeCommunicator(BaseCommunicator):
    """Ranks are processes of one machine; pipes[q] leads to rank q."""

    def __init__(self, rank, pipes, traffic=None):
        super().__init__(rank, len(pipes), traffic)
        self.pipes = pipes

    def abort(self, exit_code, message):
        raise RankError(f"rank {self.rank}, {self.phase}: {message}", exit_code)

    def close(self):
        self._meet(headers.header("close", self.size))

    def _swap(self, parts):
        """Send parts[q] to each rank q and return what each sent: the only thing that moves."""
        got = list(parts)
        for q, pipe in enumerate(self.pipes):
            if q > self.rank:  # of a pair the lower rank sends first
                pipe.send_bytes(parts[q])
            if q != self.rank:
                got[q] = pipe.recv_bytes()
            if q < self.rank:
                pipe.send_bytes(parts[q])
        return got

    def _meet(self, head, recv_rows=None):
        heads = np.stack([np.frombuffer(row, np.int64) for row in self._swap([row.tobytes() for row in head])])
        headers.check_headers(heads, self.rank, recv_rows)
        return heads

    def _reduce(self, head, x, op, wait):
        self._meet(head)
        first, *rest = (np.frombuffer(part, x.dtype).reshape(x.shape) for part in self._swap([x.tobytes()] * self.size))
        total = first.copy()
        for theirs in rest:  # in rank order: bitwise identical on all ranks
            REDUCE[op](total, theirs, out=total)
        x[...] = total
        return Done()

    def _exchange(self, head, send, send_rows, recv, recv_rows, wait):
        self._meet(head, recv_rows)
        got = self._swap([rows.tobytes() for rows in np.split(send, np.cumsum(send_rows)[:-1])])
        recv[...] = np.frombuffer(b"".join(got), recv.dtype).reshape(recv.shape)
        return Done()

    def _gather(self, head, x):
        counts = headers.rows_of(self._meet(head))
        got = b"".join(self._swap([x.tobytes()] * self.size))
        return np.frombuffer(got, x.dtype).reshape(-1, *x.shape[1:]).copy(), counts

    def _broadcast(self, head, x, root):
        self._meet(head)
        got = self._swap([x.tobytes() if self.rank == root else b""] * self.size)
        if self.rank != root:
            x[...] = np.frombuffer(got[root], x.dtype).reshape(x.shape)

    def _split(self, head, color, key):
        self._meet(head)
        mine = np.array([-1 if color is None else color, key], np.int64)
        choices = [np.frombuffer(part, np.int64) for part in self._swap([mine.tobytes()] * self.size)]
        if color is None:
            return None
        peers = [q for _, q in sorted((k, q) for q, (c, k) in enumerate(choices) if c == color)]
        return PipeCommunicator(
            peers.index(self.rank), [self.pipes[q] for q in peers], Traffic(len(peers), self.traffic, peers)
        )


def body(rank, pipes):
    from spgnn.layers import GCN, Stack

    comm = PipeCommunicator(rank, pipes)
    dgraph = spgnn.distribute(spgnn.load_graph("sbm:n=500,seed=0"), comm, method="random")
    history = spgnn.train(Stack(GCN(16, 32, act="relu"), GCN(32, 4), dropout=0.2), dgraph, epochs=30)
    if rank == 0:
        print(f"{comm.size} processes: loss {history.records[-1]['loss']:.6f}, {history.bytes_sent:,} bytes per epoch")
    comm.close()


def run(size):
    processes = multiprocessing.get_context("spawn")
    pipes = [[None] * size for _ in range(size)]
    for q in range(size):
        for p in range(q):
            pipes[p][q], pipes[q][p] = processes.Pipe()
    ranks = [processes.Process(target=body, args=(rank, pipes[rank])) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    run(1)
    run(3)
