"""The flags that say what callers speak and over what line: the same for every command that sends callers."""

from typing import Annotated, Final

import typer

from corpora.noise import KNOWN_NOISES
from corpora.profiles.profile import CHANNEL_WORDS, CODECS

_NOISE: Final = f"noise under the speech: {', '.join(KNOWN_NOISES)}, or file:PATH"
_CHANNEL: Final = f"codecs joined with +: {', '.join((*CHANNEL_WORDS, *CODECS))} (opus:KBIT)"
_ROOM: Final = "reverberation: a time such as 0.4s, far-field, or file:IMPULSE_RESPONSE"
_MIX: Final = "shares of what is said: 'short=60 medium=30 long=10', domain.NAME=, speaker.NAME="
_PROFILES: Final = "all in one: 'noise=babble snr=10 channel=telephone loss=5%/3'; several parted by ; with share="

Noise = Annotated[str | None, typer.Option(help=_NOISE)]
Snr = Annotated[float | None, typer.Option(help="signal-to-noise ratio over the active speech, dB")]
Room = Annotated[str | None, typer.Option(help=_ROOM)]
Channel = Annotated[str | None, typer.Option(help=_CHANNEL)]
Profiles = Annotated[str | None, typer.Option("--profile", help=_PROFILES)]
Mix = Annotated[str | None, typer.Option(help=_MIX)]
Length = Annotated[str | None, typer.Option(help="only utterances of this length: short, medium, long")]
CorpusName = Annotated[str | None, typer.Option(help="folder or name of a corpus")]
Clips = Annotated[int, typer.Option(help="how many utterances to use at most")]
