"""Tidegate on Apache Spark: what it measures there and what it changes."""
