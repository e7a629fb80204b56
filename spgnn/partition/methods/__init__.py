"""The partitioners that hold the whole graph."""
