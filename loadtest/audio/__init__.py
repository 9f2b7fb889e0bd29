"""Audio as arrays: PCM, G.711, resampling and audible onset; pure functions, no I/O."""
