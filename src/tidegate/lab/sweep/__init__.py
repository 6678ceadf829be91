"""Sweeps: grids of simulations, run in parallel on Spark."""
