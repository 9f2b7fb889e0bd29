"""Utterances made ready to be sent: rendered, encoded as frames of a wire, and mapped by every process.

Read `preparation` first, then `rendering` and `frames`.
"""
