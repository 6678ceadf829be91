"""Compiled kernels of the simulated cloud, and the state that they work on."""
