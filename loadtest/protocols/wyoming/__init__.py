"""The wire of Wyoming over TCP: `events` are its frames, `caller` speaks it."""
