"""The CPU time per frame of each wire, beside that of raw WebSocket frames."""
