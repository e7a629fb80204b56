"""A communicator over pipes of multiprocessing, in four methods: copy it to start one. As a script it trains on 3 ranks."""

import multiprocessing

import spgnn
from spgnn.dist.base import Done
from spgnn.dist.swap import SwapCommunicator


class PipeLink:
    """Ranks are processes of one machine; pipes[q] leads to rank q."""

    def __init__(self, rank, pipes):
        self.rank, self.pipes = rank, pipes

    def open(self):
        return self.swap

    def swap(self, send, recv):
        """Send send[q] to each rank q and fill recv[q] with what it sent: the only thing that moves."""
        for q, pipe in enumerate(self.pipes):
            if q > self.rank:  # of a pair the lower rank sends first
                pipe.send_bytes(send[q])
            if q != self.rank:
                pipe.recv_bytes_into(recv[q])
            if q < self.rank:
                pipe.send_bytes(send[q])

    def start(self, body):
        body()
        return Done()

    def part(self, peers):
        return PipeLink(list(peers).index(self.rank), [self.pipes[q] for q in peers])


def body(rank, pipes):
    from spgnn.layers import GCN, Stack

    comm = SwapCommunicator(rank, len(pipes), PipeLink(rank, pipes))
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
