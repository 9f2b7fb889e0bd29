"""Prometheus pages of model servers, read into the store.

To read in this order: `targets` (what is configured), `scraper` (reads them), `series` (makes OTLP of them).
"""
