"""Redaction of a request before anything of it is logged, stored or forwarded.

To read in this order: `rules` (what is kept of a name and a value), `messages` (the fields of OTLP), `requests` (a
whole body), `of_store` (a store's key and names).
"""
