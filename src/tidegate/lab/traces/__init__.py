"""Rate traces from event logs, built with Spark."""
