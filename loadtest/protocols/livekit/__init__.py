"""LiveKit agents: over the console link of their own command line, and in rooms."""
