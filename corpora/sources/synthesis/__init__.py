"""Synthesis of a corpus from a list of texts by a text-to-speech engine."""
