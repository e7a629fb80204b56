"""Random trainings in one process and under mpirun, half of which fail on purpose: nothing grows, hangs or is left."""

import gc
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from attack import PATIENCE, folder, own_shared_memory, spgnn, status_kb

QUICK, FULL = 20, 10_000  # two hours: trainings on threads; every twentieth is followed by one under mpirun
CASE_S = 60.0  # that one may take
MB_PER_TRAINING = 0.05  # growth of memory, after a quarter of the trainings
F, HIDDEN, C = 6, 5, 3
SAMPLERS = [
    {"sampler": "soak"}, {"sampler": "node", "budget": 20}, {"sampler": "edge", "budget": 8},
    {"sampler": "walk", "budget": 12}, {"sampler": "frontier", "budget": 15},
    {"sampler": "neighbour", "batch": 7, "fanout": "3,3"}, {"sampler": "labor", "batch": 5, "fanout": "3,2"},
    {"sampler": "cluster", "batch": 1},
]  # fmt: skip
OF_AVERAGES = [
    {}, {"optimizer": "sgd"}, {"correct": "drift"}, {"sync": "gradients"}, {"evaluation": "layerwise"},
]  # fmt: skip
REFUSED = ("sampler edge has nothing to draw", "have no training node; raise --budget")  # of parts that are as small
ERRORS = ("RuntimeError", "MemoryError", "GraphError", "NumericalError")


def draw(seed: int, number: int) -> dict:
    """Return the case of a number as JSON values."""
    dice = np.random.default_rng([seed, number])
    pick = lambda values: values[int(dice.integers(len(values)))]
    k, ranks, n = int(dice.integers(1, 9)), int(dice.integers(1, 6)), int(dice.integers(30, 120))
    if dice.random() < 0.2:
        n = int(dice.integers(12, 20))
        k = n + int(dice.integers(1, 9))  # empty parts are allowed where there are more than nodes
    options = {
        "epochs": int(dice.integers(3, 7)),
        "lr": 0.05,
        "seed": number,
        "prune": pick(("auto", "never", "always")),
    }
    options |= pick(OF_AVERAGES)
    if options.get("sync") != "gradients":
        options["interval"] = int(dice.integers(1, 4))
        if options.get("correct") != "drift" and dice.random() < 0.6:
            options |= pick(SAMPLERS)
    if dice.random() < 0.3:
        options["memory"] = "1KB" if options.get("evaluation") != "layerwise" else ""  # parts are opened in turn
        options.setdefault("evaluation", "together")
    hops = 1 if options.get("evaluation") == "layerwise" else int(dice.integers(0, 3))
    case = {"number": number, "seed": seed, "k": k, "ranks": ranks, "n": n, "hops": hops, "options": options}
    case |= {"dropout": float(pick((0.0, 0.3))), "fault": None}
    if number % 2:
        own = len(range(ranks, k + ranks, ranks))
        place = "sampler" if options.get("sampler") == "soak" and dice.random() < 0.7 else "layer"
        moment = int(dice.integers(1, 1 + options["epochs"] * own))
        case["fault"] = {"rank": int(dice.integers(ranks)), "place": place, "moment": moment, "error": pick(ERRORS)}
    return case


def make_graph(case: dict):
    """Return a graph with 3 classes, and the unequal parts of a case."""
    import spgnn

    rng, n, k = np.random.default_rng([case["seed"], case["number"], 1]), case["n"], case["k"]
    y = rng.permutation(np.arange(n) % C)
    X = np.eye(C, F)[y] + rng.normal(size=(n, F))
    split = rng.choice(3, n, p=(0.5, 0.25, 0.25)).astype(np.int8)
    share_k = rng.exponential(size=k) ** 2
    owner_N = rng.choice(k, n, p=share_k / share_k.sum()).astype(np.int32)
    if k <= n:
        owner_N[rng.permutation(n)[:k]] = np.arange(k)
    bare = np.isin(owner_N, np.flatnonzero(rng.random(k) < 0.2))  # parts without a training node
    if (split[~bare] == 0).any():
        split[bare & (split == 0)] = 1
    split[0] = 0 if not (split == 0).any() else split[0]
    edges = rng.integers(0, n, (2, 3 * n))
    graph = spgnn.graph_from_coo(*edges, n, name="soak", X=X, y=y, split=split)
    return graph.with_edges("undirected"), spgnn.Partition(owner_N, k)


class Fault:
    """Raises the exception of a case at its moment, on its rank."""

    def __init__(self, case: dict, rank: int, is_given: bool):
        fault = case["fault"] or {}
        self.place = fault.get("place") if is_given and fault.get("rank") == rank else None
        self.left, self.error, self.lock = fault.get("moment", 0), fault.get("error"), threading.Lock()
        self.ranks, self.rank, self.has_raised = case["ranks"], rank, False

    def at(self, place: str) -> None:
        if place != self.place:
            return
        with self.lock:
            self.left -= 1
            is_due = self.left == 0
            self.has_raised |= is_due
        if is_due:
            raise error_type(self.error)("on purpose")


def error_type(name: str) -> type[Exception]:
    import builtins

    from spgnn import errors

    return getattr(builtins, name, None) or getattr(errors, name)


def train(comm, case: dict, folder: Path, is_given: bool, faults: dict) -> dict:
    """Train a case on the ranks of comm; return losses, scores and weights. Collective."""
    import torch

    import spgnn
    from spgnn.layers import GCN, SAGE, Stack
    from spgnn.partition import save_partition

    fault = faults[comm.rank] = Fault(case, comm.rank, is_given)

    class First(SAGE):
        hops = 1

        def forward(self, A, H):
            if H.device.type != "meta":  # else it is run without data, before training
                fault.at("layer")
            return super().forward(A, H)

    @spgnn.sampler("soak")
    def soak(graph, rng):
        p = int(graph.name.rpartition(" ")[2])  # "soak part 3"
        faults[p % comm.size].at("sampler")
        return rng.choice(graph.n_nodes, max(1, graph.n_nodes // 2), replace=False)

    graph, partition = make_graph(case)
    how = {"hops": case["hops"], "dtype": "float64", "threads": 1}
    path = folder / f"parts-{case['number']}-{comm.size}"
    if comm.rank == 0:
        save_partition(partition, path, graph, hops=case["hops"])
    comm.barrier()
    parts = spgnn.Parts(path, comm, **how)
    model = Stack(First(F, HIDDEN, act="relu"), GCN(HIDDEN, C), dropout=case["dropout"])
    history = spgnn.train(model, parts, **case["options"])
    state = torch.cat([value.detach().double().ravel() for value in model.state_dict().values()])
    records = [[r[name] for name in ("loss", "train", "val", "test")] for r in history.records]
    counted = {name: sum(r[name] for r in history.records) for name in ("sync_bytes",)}
    return {"records": records, "weights": state.tolist()} | counted


def outcome(error: BaseException, case: dict) -> list[str]:
    """Return what is wrong with the error of a failed training: its exit code, or that it does not name the rank."""
    from spgnn.errors import exit_code_of

    fault = case["fault"]
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    wrong = [] if f"rank {fault['rank']}" in text else [f"does not name rank {fault['rank']}: {text}"]
    if exit_code_of(error) not in (codes := expected_codes(fault)):
        wrong.append(f"exit code {exit_code_of(error)}, expected {codes}: {text}")
    return wrong


def expected_codes(fault: dict) -> tuple[int, ...]:
    code = {"RuntimeError": 1, "MemoryError": 4, "GraphError": 3, "NumericalError": 5}[fault["error"]]
    return (3,) if fault["place"] == "sampler" and code == 1 else (code,)  # a sampler that fails is an input


def differences(found: dict, alone: dict) -> float:
    """Return the largest difference of two trainings; infinity where one is not finite."""
    if len(found["records"]) != len(alone["records"]):
        return float("inf")
    pairs = [(found[name], alone[name]) for name in ("records", "weights")]
    worst = max(float(np.abs(np.subtract(*map(np.nan_to_num, map(_floats, pair)))).max()) for pair in pairs)
    losses = [record[0] for record in found["records"]]
    return worst if np.isfinite(losses).all() else float("inf")


def _floats(values) -> np.ndarray:
    return np.array(values, np.float64)  # a score that was not computed, or has no nodes, is NaN


def attack(seed: int, amount: int):
    """Train amount random averaged trainings here, and some commands under mpirun; return what grew, and what was wrong."""
    import torch

    torch.set_num_threads(1)
    failures, warm = [], max(2, amount // 4)
    counts = {"trainings": amount, "failed on purpose": 0, "refused": 0, "under mpirun": 0}
    is_ours = own_shared_memory()
    with folder() as home:
        for number in range(amount):
            case = draw(seed, number)
            failures += [f"training {number}: {said}" for said in one(case, home, counts)]
            if number % 20 == 19:
                counts["under mpirun"] += 1
                failures += under_mpirun(case, home, is_ours)
            if number == warm:
                before = held(is_ours)
        after = held(is_ours)
    growth = (after["MB"] - before["MB"]) / (amount - warm)
    failures += [
        f"{name}: {before[name]} before, {after[name]} after"
        for name in before
        if name != "MB" and after[name] > before[name]
    ]
    failures += [f"memory grows by {growth:.2f} MB per training"] if growth > MB_PER_TRAINING and amount >= 100 else []
    return counts | {
        "MB more": round(after["MB"] - before["MB"], 1),
        "files more": after["files"] - before["files"],
        "shared memory watched": "yes" if is_ours else "no",
    }, failures


def held(is_ours: bool) -> dict:
    """Return what this process holds; is_ours: nobody else writes shared memory here."""
    gc.collect()
    return {
        "MB": status_kb("VmRSS") / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "shared memory": len(os.listdir("/dev/shm")) if is_ours else 0,
        "temporary files": len(os.listdir(tempfile.gettempdir())),
    }


def one(case: dict, home: Path, counts: dict) -> list[str]:
    """Train one case on ranks that are threads, and on one rank; return what is wrong."""
    from spgnn.dist import SelfCommunicator, run_threads

    faults: dict = {}
    try:
        found = run_threads(case["ranks"], train, case, home, True, faults, timeout=PATIENCE * CASE_S / 2)[0]
    except Exception as error:
        is_meant, is_refused = any(fault.has_raised for fault in faults.values()), any(map(str(error).count, REFUSED))
        counts["refused" if is_refused and not is_meant else "failed on purpose"] += 1
        wrong = [] if is_refused else [f"failed: {type(error).__name__}: {error}"[:500]]
        wrong = outcome(error, case) if is_meant else wrong
    else:
        difference = differences(found, train(SelfCommunicator(), case, home, False, {}))
        wrong = [] if difference <= 1e-10 else [f"differs by {difference:.2g} from one rank"]
        wrong += ["an exception was lost"] if any(fault.has_raised for fault in faults.values()) else []
    end = time.monotonic() + 5
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.01)
    return wrong + [f"thread left: {t.name}" for t in threading.enumerate() if t is not threading.main_thread()]


def under_mpirun(case: dict, home: Path, is_ours: bool) -> list[str]:
    """Train on two to four ranks of MPI by the command line; return what is wrong or left."""
    (temporary := home / "tmp").mkdir(exist_ok=True)
    before = set(os.listdir("/dev/shm") if is_ours else ())
    words = ["train", "sbm:n=200,seed=1", "--epochs", 4, "--hidden", 4, "--threads", 1, "--seed", case["number"]]
    mode = ["--mode", "average", "--parts", 4] if case["number"] % 40 == 19 else ["--dropout", 0.3]
    how = {"ranks": 2 + case["number"] % 3, "env": {"TMPDIR": str(temporary)}, "limit_s": CASE_S}
    ended = spgnn(*words, *mode, "--out", home / f"run-{case['number']}", **how)
    segments = set(os.listdir("/dev/shm") if is_ours else ()) - before
    left = [*segments, *os.listdir(temporary)]
    return [f"under mpirun: {said}" for said in (ended.fault(0), f"left {left}" if left else "") if said]


def plant() -> None:
    """A training keeps a file open."""
    from spgnn.training import trainer

    fit, kept = trainer.Trainer.fit, []

    def careless(self, *words, **options):
        kept.append(open(os.devnull))
        return fit(self, *words, **options)

    trainer.Trainer.fit = careless
