"""The dry run of a model: what it would multiply, send and hold, on torch's meta device."""
