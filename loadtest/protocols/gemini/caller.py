"""The caller's side of Gemini Live (BidiGenerateContent over a WebSocket).

The service sends a reply's audio as fast as it is generated. Its messages are JSON, in binary frames.
"""

import base64
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import CallerOptions, Capabilities, Message, OpenRequest, SpokenText
from loadtest.protocols.failure import Failure
from loadtest.protocols.gemini.session import LiveSession
from loadtest.protocols.gemini.settings import (
    completed,
    credentials,
    gemini_settings,
    is_enterprise,
    not_observable,
    setup_message,
)

INPUT_RATE_HZ: Final = 16_000
FRAME_MS: Final = 20
# How the reason of a close frame, of which 123 bytes fit, names a limit: the same close code is for internal errors.
_LIMIT: Final = re.compile(r"resource_exhausted|resource has been exhausted|\bquota\b", re.IGNORECASE)


class GeminiCaller(LiveSession):
    """One conversation of a caller."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError with all faults of settings and options."""
        super().__init__(gemini_settings(options))
        self._options = options
        self._manual = options.turn_control == "manual"
        self._enterprise = False
        self.capabilities = Capabilities(
            input_rate_hz=INPUT_RATE_HZ,
            frame_ms=FRAME_MS,
            not_observable=not_observable(options, self._settings),
            names_questions=False,
        )

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Complete the address by the service's path; put the key, or the token, and the trace into headers."""
        parts = urlsplit(target_url)
        self._enterprise = is_enterprise(parts)
        headers = credentials(parts, self._options.token)
        if traceparent is not None:
            headers.append(("traceparent", traceparent))
        url = urlunsplit(completed(parts, self._options, self._settings))
        return OpenRequest(url, (*headers, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """Return the setup, which the service acknowledges."""
        return (setup_message(self._options, self._settings, enterprise=self._enterprise),)

    def awaited(self) -> str | None:
        """Return the message that accepts the setup."""
        return "setupComplete in answer to setup"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return `realtimeInput.audio` with one frame."""
        encoded = base64.b64encode(samples.to_bytes(pcm))
        return b'{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"' + encoded + b'"}}}'

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Under manual turn control, tell the service that the caller begins to speak."""
        super().begin_turn(spoken)
        return ('{"realtimeInput":{"activityStart":{}}}',) if self._manual else ()

    def end_turn(self) -> Sequence[Message]:
        """Under manual turn control, tell the service that the caller has finished."""
        return ('{"realtimeInput":{"activityEnd":{}}}',) if self._manual else ()

    def goodbye(self) -> Sequence[Message]:
        """Send the end of the audio stream; only the service's own detection of speech accepts it."""
        return () if self._manual else ('{"realtimeInput":{"audioStreamEnd":true}}',)

    def close_cause(self, code: int, reason: str) -> Failure | None:
        """Distinguish a limit of sessions or of use, which expires, from other reasons with the same code."""
        del code
        return Failure("endpoint_error", "RESOURCE_EXHAUSTED") if _LIMIT.search(reason) else None
