"""Processes on this machine: a Spark session, a standalone cluster, a Kafka broker."""
