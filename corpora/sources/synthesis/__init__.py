"""Clips of known text: a list of texts, spoken by an engine into a corpus."""
