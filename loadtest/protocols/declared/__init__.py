"""A wire that a YAML file describes: `spec` reads it, `recognition` and `templates` apply it, `caller` speaks it."""
