"""Place: where in a model a product with A is made."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A layer, None outside of layers, and the pass; exchanges are counted under the label."""

    layer: int | None = None
    pass_name: str = "forward"  # forward, backward, evaluate or setup

    @property
    def label(self) -> str:
        """The label of the traffic, "" outside of layers."""
        return "" if self.layer is None else f"layer {self.layer} {self.pass_name}"


OUTSIDE = Place()  # of layers: not labelled
