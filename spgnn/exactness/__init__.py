"""Whether a model is exact on any ranks, and which of its modules is not."""
