"""Study: one graph cut by several methods into several k, and what each partition sends under each scheme; its tables.

Source: sparsity-aware paper (ICPP'24), Table 2; entropy-aware paper, Table V.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from spgnn.analysis import measure
from spgnn.config.names import SCHEMES
from spgnn.cost.pairs import grid_of, summed_rows
from spgnn.errors import InputError, SpgnnError, UsageError, nearest
from spgnn.graph import Graph
from spgnn.partition import PARTITIONERS, Partition, part_graph, part_stream, partition_of
from spgnn.partition.metrics import label_entropies
from spgnn.partition.stream.registry import STREAMING

ENTRY_BYTES = 4  # float32
PAPER_WIDTHS = (300, 16, 24)  # of the ICPP'24 paper's runs, for a graph without features or labels
# Volume of one SpMM per rank, as in the ICPP'24 paper's Table 2.
VOLUMES = {
    "k": "k", "method": "method", "scheme": "scheme", "replication": "c", "total_mb": "total MB",
    "average_send_mb": "average", "max_send_mb": "max", "send_imbalance_percent": "above %", "max_recv_mb": "received",
    "sum_mb": "summed",
}  # fmt: skip
PARTS = {
    "k": "k", "method": "method", "edge_cut": "edge cut", "replication_without_halo": "no halo",
    "replication_factor": "copies", "nnz_imbalance": "work", "label_entropy": "entropy", "seconds": "seconds",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is cut and measured; values that are given twice count once.

    methods  names in PARTITIONERS, options after colons (metis:objective=vol); ("all",): every one, without those that
             cannot cut the graph.
    widths   of the layers; default: features, 128, classes, or the ICPP'24 paper's.
    width    columns of H in the one SpMM of Table 2; default: the first of widths.
    """

    ks: tuple[int, ...]
    methods: tuple[str, ...]
    schemes: tuple[str, ...] = ("columns",)
    replications: tuple[int, ...] = (1,)
    widths: tuple[int, ...] = ()
    width: int = 0
    seed: int = 0
    balance: float = 1.03

    def lines(self, graph: Graph, note: Callable[[str], None] = lambda line: None) -> Iterator[dict]:
        """Yield a line for each k, method, scheme and replication: the object of `spgnn measure` and more.

        width, graph, *_mb        see sent_mb; name of the graph.
        replication_without_halo  replicas per node by the edges that a vertex cut assigns to parts; 1 for edge cuts.
        label_entropy*            bits: averaged by labelled nodes, least, largest; None without labels.

        Args:   note  called with a line of text per partition.
        Raises: UsageError for a method, scheme or replication that does not fit, before anything is cut.
        """
        methods = {method: method_of(method) for method in (PARTITIONERS if self.is_all else self.methods)}
        cases = [(scheme, c) for scheme in dict.fromkeys(self.schemes) for c in dict.fromkeys(self.replications)]
        self._check(cases)
        graph = graph.in_use()
        widths = self.widths or default_widths(graph)
        width = self.width or widths[0]
        left_out = {}
        for k in dict.fromkeys(self.ks):
            for method in [method for method in methods if method not in left_out]:
                try:
                    part, facts = self._cut(graph, k, *methods[method])
                except SpgnnError as error:
                    if not self.is_all:
                        raise
                    left_out[method] = str(error)
                    note(f"{method} is left out: {error}")
                    continue
                note(f"k = {k}, {method}: {part.seconds:.2f} s")
                for scheme, c in cases:
                    report = measure(graph, replace(part, method=method), scheme, widths, c)
                    record = report.to_dict() | facts | {"graph": graph.name}
                    yield record | sent_mb(record, width)
        if len(left_out) == len(methods):
            why = "; ".join(f"{method}: {error}" for method, error in left_out.items())
            raise InputError(f"{graph.name}: no method could cut it: {why}")

    @property
    def is_all(self) -> bool:
        """Whether every method is tried."""
        return self.methods == ("all",)

    def _check(self, cases: list[tuple[str, int]]) -> None:
        for scheme, c in cases:
            if scheme not in SCHEMES:
                raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
            for k in self.ks:
                grid_of(k, c)

    def _cut(self, graph: Graph, k: int, name: str, options: dict) -> tuple[Partition, dict]:
        """Return what part_graph does, and the keys of a line that do not depend on the scheme."""
        copies = 1.0
        if name in STREAMING:
            made = part_stream(graph, k, name, seed=self.seed, balance=self.balance, **options)
            part = partition_of(graph, made.owner_N, k, name, self.seed, self.balance, made.total_s)
            if "cut_replicas" in made.details and graph.n_nodes:  # no edge takes an isolated node to a part
                copies = (int(made.details["cut_replicas"]) + graph.describe()["isolated"]) / graph.n_nodes
        else:
            part = part_graph(graph, k, name, seed=self.seed, balance=self.balance, **options)
        entropies = (None, None, None)
        if graph.y is not None and not graph.is_regression:
            entropies_k, mean = label_entropies(graph.y, part.owner_N, part.k)
            entropies = (mean, float(entropies_k.min()), float(entropies_k.max()))
        keys = ("replication_without_halo", "label_entropy", "label_entropy_min", "label_entropy_max")
        return part, dict(zip(keys, (copies, *entropies)))


def sent_mb(record: dict, width: int) -> dict:
    """Return what one SpMM of `width` columns of float32 sends, in MB of 10^6 bytes, from a line of measure: Table 2.

    send_imbalance_percent  100 (max / mean - 1): by how much the largest send of a rank is above the average.
    sum_mb                  sums over process rows of 1.5D, which the others do not include.
    """
    mb = width * ENTRY_BYTES / 1e6
    return {
        "width": width,
        "total_mb": record["total_rows"] * mb,
        "average_send_mb": record["mean_send_rows"] * mb,
        "max_send_mb": record["max_send_rows"] * mb,
        "max_recv_mb": record["max_recv_rows"] * mb,
        "sum_mb": summed_rows(record["n"], record["replication"]) * mb,
        "send_imbalance_percent": 100 * (record["max_over_mean_send"] - 1),
    }


def method_of(text: str) -> tuple[str, dict]:
    """Return name and options of metis:objective=vol; UsageError for a method that is not known."""
    name, *given = text.split(":")
    PARTITIONERS.find(name)
    options = {}
    for option in given:
        key, equals, value = option.partition("=")
        if not (key and equals and value):
            raise UsageError(f"method {text!r}: {option!r} is no option; expected KEY=VALUE, such as objective=vol")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = {"true": True, "false": False}.get(value, value)
    return name, options


def default_widths(graph: Graph) -> tuple[int, ...]:
    """Return features, 128, classes; the ICPP'24 paper's widths if the graph lacks one of them."""
    return (graph.n_features, 128, graph.n_classes) if graph.n_features and graph.n_classes else PAPER_WIDTHS


def volumes(records: list[dict]) -> tuple[list[dict], dict[str, str]]:
    """Return rows and headings of the table of volumes: a row per k, scheme, c and method."""
    order = {record["scheme"]: i for i, record in reversed(list(enumerate(records)))}
    rows = sorted(records, key=lambda r: (r["k"], order[r["scheme"]], r["replication"]))
    without = () if any(r["replication"] > 1 for r in rows) else ("replication", "sum_mb")
    return rows, {key: text for key, text in VOLUMES.items() if key not in without}


def parts(records: list[dict]) -> tuple[list[dict], dict[str, str]]:
    """Return rows and headings of the table of partitions, which do not depend on the scheme: a row per (k, method)."""
    first: dict[tuple, dict] = {}
    for record in records:
        first.setdefault((record["k"], record["method"]), record)
    rows = sorted(first.values(), key=lambda r: r["k"])
    return rows, {key: text for key, text in PARTS.items() if any(row[key] is not None for row in rows)}
