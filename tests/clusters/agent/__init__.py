"""Applications with Tidegate's agent, live on the embedded standalone cluster."""
