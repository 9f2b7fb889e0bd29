"""The names that ElevenLabs gives to formats of audio: `pcm_16000`, `ulaw_8000` and the others."""

from typing import Final, Literal

from loadtest.protocols.audio_format import AudioFormat

FormatName = Literal["pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000", "ulaw_8000"]
USUAL: Final[FormatName] = "pcm_16000"  # what the vendor's clients assume where nothing is said
FORMATS: Final[dict[str, AudioFormat]] = {
    "pcm_8000": AudioFormat("pcm16", 8_000),
    "pcm_16000": AudioFormat("pcm16", 16_000),
    "pcm_22050": AudioFormat("pcm16", 22_050),
    "pcm_24000": AudioFormat("pcm16", 24_000),
    "pcm_44100": AudioFormat("pcm16", 44_100),
    "pcm_48000": AudioFormat("pcm16", 48_000),
    "ulaw_8000": AudioFormat("pcmu", 8_000),
}
