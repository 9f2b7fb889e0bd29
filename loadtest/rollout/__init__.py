"""`voiceprobe rollout run` and its like: a staged rollout carried along by its verdicts."""
