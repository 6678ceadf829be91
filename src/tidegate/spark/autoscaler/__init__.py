"""The autoscaler of a running Structured Streaming application."""
