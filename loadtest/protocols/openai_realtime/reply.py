"""One response, from the endpoint's side: its events in the order that official clients expect.

The item and its content part are announced with the first text or audio, so a reply that is cancelled before that is
just `response.created` and `response.done`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from loadtest.protocols.base import Pcm16
from loadtest.protocols.openai_realtime.encoder import Encoder
from loadtest.protocols.openai_realtime.formats import beta_name, ga_object
from loadtest.protocols.openai_realtime.names import ServerEvent
from loadtest.protocols.openai_realtime.session_config import Modality, SessionConfig

Status = Literal["completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one response."""

    input_text_tokens: int = 0
    input_audio_tokens: int = 0
    cached_tokens: int = 0
    output_text_tokens: int = 0
    output_audio_tokens: int = 0

    def rendered(self) -> dict[str, object]:
        """Return the usage object on the wire."""
        input_tokens = self.input_text_tokens + self.input_audio_tokens
        output_tokens = self.output_text_tokens + self.output_audio_tokens
        return {
            "total_tokens": input_tokens + output_tokens,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "input_token_details": {
                "text_tokens": self.input_text_tokens,
                "audio_tokens": self.input_audio_tokens,
                "cached_tokens": self.cached_tokens,
            },
            "output_token_details": {
                "text_tokens": self.output_text_tokens,
                "audio_tokens": self.output_audio_tokens,
            },
        }


class ServiceReply:
    """One response, created by `ServiceSession.reply`.

    Audio is PCM16 at `rate_hz`, the session's output rate when the response was created.
    """

    def __init__(
        self,
        encoder: Encoder,
        config: SessionConfig,
        *,
        metadata: Mapping[str, str],
        modality: Modality,
        previous_item_id: str | None,
        conversation_id: str,
    ) -> None:
        self.response_id = encoder.make_id("resp")
        self.item_id = encoder.make_id("item")
        self.metadata = dict(metadata)
        self.modality = modality
        self._encoder = encoder
        self._config = config
        self._previous_item_id = previous_item_id
        self._conversation_id = conversation_id
        self._text: list[str] = []
        self._opened = False
        self._ended = False

    @property
    def rate_hz(self) -> int:
        """The sample rate that `audio_delta` expects."""
        return self._config.output_format.rate_hz

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def created(self) -> str:
        """Create `response.created`."""
        return self._encoder(ServerEvent.RESPONSE_CREATED, response=self._response("in_progress", None, None))

    def text_delta(self, text: str) -> list[str]:
        """Create the events for the next text: the transcript of the audio, or the answer itself in text mode."""
        self._text.append(text)
        event = ServerEvent.TRANSCRIPT_DELTA if self.modality == "audio" else ServerEvent.TEXT_DELTA
        return [*self._open(), self._encoder(event, **self._part_ids(), delta=text)]

    def audio_delta(self, pcm: Pcm16) -> list[str]:
        """Create the events for the next audio. Raises ValueError in text mode."""
        if self.modality != "audio":
            raise ValueError("this response is text only")
        encoded = base64.b64encode(self._config.output_format.encode(pcm)).decode()
        return [*self._open(), self._encoder(ServerEvent.AUDIO_DELTA, **self._part_ids(), delta=encoded)]

    def done(
        self,
        status: Status = "completed",
        *,
        reason: Reason | None = None,
        error: str | None = None,
        usage: Usage | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Close everything that was opened and end with `response.done`. `metadata` is added to the response's."""
        if self._ended:
            raise ValueError(f"the response {self.response_id} has already ended")
        self._ended = True
        self.metadata |= metadata or {}
        messages: list[str] = []
        if self._opened:
            ids = self._part_ids()
            if self.modality == "audio":
                messages.append(self._encoder(ServerEvent.AUDIO_DONE, **ids))
                messages.append(self._encoder(ServerEvent.TRANSCRIPT_DONE, **ids, transcript=self.text))
            else:
                messages.append(self._encoder(ServerEvent.TEXT_DONE, **ids, text=self.text))
            messages.append(self._encoder(ServerEvent.CONTENT_PART_DONE, **ids, part=self._part(self.text)))
            item = self._item("completed" if status == "completed" else "incomplete")
            messages.append(self._encoder(ServerEvent.OUTPUT_ITEM_DONE, **self._output_ids(), item=item))
            messages += self._encoder.ga_only(ServerEvent.ITEM_DONE, previous_item_id=self._previous_item_id, item=item)
        details: dict[str, object] | None = None
        if status != "completed":
            details = {"type": status}
            if reason is not None:
                details["reason"] = reason
            if error is not None:
                details["error"] = {"type": "server_error", "code": "response_failed", "message": error}
        messages.append(self._encoder(ServerEvent.RESPONSE_DONE, response=self._response(status, details, usage)))
        return messages

    def _open(self) -> list[str]:
        if self._opened:
            return []
        self._opened = True
        item = self._item("in_progress")
        return [
            self._encoder(ServerEvent.OUTPUT_ITEM_ADDED, **self._output_ids(), item=item),
            self._encoder(ServerEvent.ITEM_ADDED, previous_item_id=self._previous_item_id, item=item),
            self._encoder(ServerEvent.CONTENT_PART_ADDED, **self._part_ids(), part=self._part("")),
        ]

    def _output_ids(self) -> dict[str, object]:
        return {"response_id": self.response_id, "output_index": 0}

    def _part_ids(self) -> dict[str, object]:
        return {"response_id": self.response_id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _part(self, text: str) -> dict[str, object]:
        """Return the content part of `response.content_part.*`, which has the short type names in GA as well."""
        return {"type": "audio", "transcript": text} if self.modality == "audio" else {"type": "text", "text": text}

    def _item(self, status: str) -> dict[str, object]:
        content: list[dict[str, object]] = []
        if status != "in_progress":
            part = self._part(self.text)
            content.append(part if self._encoder.beta else part | {"type": f"output_{part['type']}"})
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _response(self, status: str, details: Mapping[str, object] | None, usage: Usage | None) -> dict[str, object]:
        ended_item = "completed" if status == "completed" else "incomplete"
        shown = self._opened and status != "in_progress"
        response: dict[str, object] = {
            "id": self.response_id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": [self._item(ended_item)] if shown else [],
            "conversation_id": self._conversation_id,
            "usage": None if usage is None else usage.rendered(),
            "metadata": dict(self.metadata) or None,
        }
        if self._encoder.beta:
            return response | {
                "modalities": ["text"] if self.modality == "text" else ["audio", "text"],
                "voice": self._config.voice,
                "output_audio_format": beta_name(self._config.output_format),
            }
        output = {"format": ga_object(self._config.output_format), "voice": self._config.voice}
        return response | {"output_modalities": [self.modality], "audio": {"output": output}}
