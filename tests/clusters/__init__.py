"""Cluster managers on this machine, for tests."""
