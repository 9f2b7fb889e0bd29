"""Framings, sans-I/O: the messages of a protocol over one byte stream."""
