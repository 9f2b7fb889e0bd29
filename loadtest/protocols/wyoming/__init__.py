"""The wire of Wyoming over TCP."""
