"""Formulas and compiled kernels: queueing networks, micro-batches and placement."""
