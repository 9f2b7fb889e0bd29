"""The wire of Gemini Live: `settings` begin a session, `session` decodes it, `caller` speaks it."""
