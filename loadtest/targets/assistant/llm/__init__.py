"""Language models: `base` is their interface; `rules` has declared timing, `http_engine` asks an endpoint."""
