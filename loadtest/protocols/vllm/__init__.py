"""The wire of vLLM's realtime recognition."""
