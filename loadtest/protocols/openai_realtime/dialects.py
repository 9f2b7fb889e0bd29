"""The servers that speak OpenAI Realtime, and what each expects of a client that the others do not.

Their events differ mostly in names, which need no dialect: every caller understands all of them (`names`).
"""

from dataclasses import dataclass
from typing import Final, Literal

from loadtest.protocols.base import TurnControl

# What a `session.update` looks like: nested with a type (GA), flat with names of formats (beta), or xAI's mixture.
SessionShape = Literal["ga", "beta", "xai"]

_BETA_HEADER: Final = ("OpenAI-Beta", "realtime=v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. The path and the query are used where the address has none of its own."""

    name: str
    headers: tuple[tuple[str, str], ...] = ()
    session: SessionShape = "ga"
    cumulative_partials: bool = False  # `...transcription.delta` carries the whole partial so far
    path: str = "/v1/realtime"
    query: tuple[tuple[str, str], ...] = ()
    model_parameter: str = "model"  # of the address
    key_header: str | None = None  # carries the token as it is; None: `Authorization` carries it as a bearer token
    # Requested unless another is asked for; None: the server's own, which a request would replace.
    transcription_model: str | None = "gpt-4o-mini-transcribe"
    states_formats: bool = True  # False: the server has one format, and refuses a request that names it
    binary_audio: bool = False  # whether audio can be requested as binary messages
    turn_controls: frozenset[TurnControl] = frozenset({"server", "manual"})


GA: Final = Dialect(name="openai-realtime")
BETA: Final = Dialect(name="openai-realtime-beta", headers=(_BETA_HEADER,), session="beta")

# By the names of the setting `dialect`.
DIALECTS: Final = {
    "openai": GA,
    "openai-beta": BETA,
    # The v1 surface: GA, with the deployment as the model, and a key in a header of its own.
    "azure": Dialect(name="azure", path="/openai/v1/realtime", key_header="api-key"),
    "azure-preview": Dialect(
        name="azure-preview",
        session="beta",
        path="/openai/realtime",
        query=(("api-version", "2025-04-01-preview"),),
        model_parameter="deployment",
        key_header="api-key",
        transcription_model="whisper-1",
    ),
    "xai": Dialect(name="xai", session="xai", transcription_model="grok-transcribe", binary_audio=True),
    # A model in the request would replace the transcription of the pipeline.
    "localai": Dialect(name="localai", transcription_model=None),
    "speaches": Dialect(
        name="speaches",
        session="beta",
        transcription_model=None,
        states_formats=False,
        turn_controls=frozenset({"server"}),  # it does not accept that `turn_detection` is null
    ),
    "speech-to-speech": Dialect(name="speech-to-speech"),
}
