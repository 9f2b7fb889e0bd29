"""Callers who speak, wait and hear, as in `voiceprobe calibrate`: our engine beside callers in C."""
