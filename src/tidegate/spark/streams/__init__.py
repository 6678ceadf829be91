"""Topologies of streaming queries that topics connect, in folders or in Kafka."""
