"""Prometheus pages of model servers: `targets` (configured), `scraper` (reads them), `series` (makes OTLP of them)."""
