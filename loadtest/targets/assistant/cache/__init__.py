"""Prompt caches: `base` is their interface, with the one in memory; `redis_cache` is shared by processes."""
