"""The metrics that a wire cannot show without a stage of a turn."""

from typing import Final

OF_PARTIALS: Final = ("asr_partial_latency",)
OF_TRANSCRIPTS: Final = ("asr_final_latency", "llm_ttft", "wer")
OF_TEXT: Final = (
    "llm_first_token_latency",
    "llm_ttft",
    "itl",
    "tts_first_chunk_latency",
    "time_to_first_sentence",
    "tokens_per_s",
    "tokens_per_s_wall",
    "tokens_per_chunk",
)
OF_SPEECH: Final = (
    "voice_to_voice",
    "tts_first_chunk_latency",
    "leading_silence",
    "barge_in_stop",
    "talk_over",
    "underrun_worst",
    "underrun_total",
    "underrun_count",
    "audio_rtfx",
)
