"""`voiceprobe bench density`: the CPU time per frame of each wire, beside that of raw WebSocket frames."""
