"""Recognizers: `base` is their interface; `scripted` knows its clips, `worker_asr` runs real ones in processes."""
