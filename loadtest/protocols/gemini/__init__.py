"""The wire of Gemini Live: `setup` begins a session, `session` decodes it, `caller` speaks it."""
