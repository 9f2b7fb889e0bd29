"""Explanations: the dimension behind the slow turns (dimensions), and the cause of a missed objective (miss_cause).
Pure."""
