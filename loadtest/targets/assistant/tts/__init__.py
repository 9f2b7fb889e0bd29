"""Voices: `base` is their interface; `scripted` has declared timing, `worker_tts` runs real ones in a process."""
