"""Whole streaming jobs for the demonstration and the live benchmark: input, query, books."""
