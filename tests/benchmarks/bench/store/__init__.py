"""Measures the sidecar's store: what it takes in, how soon it is seen, and how fast it answers."""
