"""A CUDA graph on the CPU: what a function asks of torch and of the kernels is recorded, and done again on the same memory.

    capture = Recorded(kernels)                  # emulated_kernels(): their launches are recorded too
    trainer.steps = CapturedStep(trainer.steps, capture)

What the host decided while it was recorded (a dropout key, a step of Adam) is in the record for good, as on a device;
`syncs` names the operations for which a device's host waits, which no capture allows. Copies between host and device,
streams, and memory that one step hands to the next are a device's own: nothing here sees them.
"""

from __future__ import annotations

import sys
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spgnn.training import optimizer

SYNCS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal")


def adam_as_on_a_device(monkeypatch) -> None:
    """Have Adam's foreach form on the CPU, which counts its steps in a tensor."""
    home, adam = sys.modules[optimizer.adam.__module__], optimizer.adam
    monkeypatch.setattr(home, "_get_capturable_supported_devices", lambda **_: ["cpu"])
    monkeypatch.setattr(
        optimizer, "adam", lambda *args, **options: adam(*args, **options | {"foreach": True, "capturable": True})
    )


class Recorded:
    """Captures functions; kept: the pool's tensors, whose memory must stay theirs."""

    def __init__(self, kernels, pool):
        self.kernels, self.pool = kernels, pool
        self.syncs: Counter[str] = Counter()

    def __call__(self, function):
        record = _Record(self.syncs)
        launch, empty = self.kernels.launcher.launch, self.pool.empty

        def launched(*args):
            launch(*args)
            record.again.append(lambda: launch(*args))

        def kept(*args, **options):
            record.held.append(empty(*args, **options))
            return record.held[-1]

        self.kernels.launcher.launch, self.pool.empty = launched, kept
        try:
            with record:
                result = function()
        finally:
            self.kernels.launcher.launch, self.pool.empty = launch, empty
        return record, result


class _Record(TorchDispatchMode):
    def __init__(self, syncs: Counter):
        super().__init__()
        self.again, self.held, self.syncs, self.is_first = [], [], syncs, True

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        options = kwargs or {}
        result = operation(*args, **options)
        name = operation.__name__.partition(".")[0]
        has_mask = name in ("index", "index_put", "index_put_") and any(
            torch.is_tensor(i) and i.dtype == torch.bool for i in args[1]
        )
        if name in SYNCS or has_mask:
            self.syncs[name] += 1

        def again():
            for old, new in zip(tree_leaves(result), tree_leaves(operation(*args, **options))):
                if torch.is_tensor(old) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        self.again.append(again)
        return result

    def replay(self) -> None:
        """Do everything again; the first time it was done while it was recorded."""
        if not self.is_first:
            with torch.no_grad():
                for step in self.again:
                    step()
        self.is_first = False
