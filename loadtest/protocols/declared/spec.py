"""The specification of a declared wire: opening, frames, and the meaning of messages. Pure.

A spec is a YAML file; `parse_spec` reports all its faults at once, each with its line and field.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import pydantic
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from loadtest.errors import UsageError
from loadtest.protocols.declared.templates import AUDIO, OF_CALL, OF_FRAME, JsonPath, check_template, parse_path, places
from loadtest.protocols.wire_settings import reason_of

Location = tuple[str | int, ...]


class Lines:
    """The lines of a YAML text's values."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location) -> tuple[int | None, Location]:
        """Return the line of the value at a location, or of the nearest one around it, and how much of the location
        exists in the text: a validator's own names (of the kinds it tried) do not."""
        node, line, known = self._root, 1, list[str | int]()
        for part in location:
            inner = _member(node, part)
            if inner is None:
                continue
            node, line = inner
            known.append(part)
        return line, tuple(known)


def _member(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        pairs = cast(list[tuple[yaml.Node, yaml.Node]], node.value)
        for key, value in pairs:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = cast(yaml.Node, node.value[part])
        return value, value.start_mark.line + 1
    return None


def read_yaml(text: str, name: str) -> tuple[Any, Lines]:
    """Return the content of a YAML text and the lines of its values. Raises UsageError with the line of a fault."""
    try:
        root = cast(yaml.Node | None, yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise UsageError(f"{name}:{line}: this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{name}: this is not YAML: {' '.join(str(error).split())}") from None
    repeated = "\n".join(f"{name}:{line}: {key}: is there twice" for key, line in _repeated(root))
    if repeated:
        raise UsageError(repeated)
    if not isinstance(content, dict):
        raise UsageError(f"{name}: a spec is a mapping with the members name and events; see examples/protocols")
    return cast(Any, content), Lines(root)


def _repeated(node: yaml.Node | None) -> list[tuple[str, int]]:
    repeated: list[tuple[str, int]] = []
    if isinstance(node, yaml.MappingNode):
        seen = set[str]()
        for key, value in cast(list[tuple[yaml.Node, yaml.Node]], node.value):
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    repeated.append((str(key.value), key.start_mark.line + 1))
                seen.add(str(key.value))
            repeated += _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in cast(list[yaml.Node], node.value):
            repeated += _repeated(value)
    return repeated


Meaning = Literal[
    "ready",
    "speech_started",
    "speech_stopped",
    "partial",
    "final",
    "asr_failed",
    "reply_started",
    "text",
    "reasoning",
    "synthesis_started",
    "audio",
    "audio_done",
    "reply_done",
    "clear",
    "mark",
    "report",
    "error",
    "ignored",
]
Encoding = Literal["pcm16", "pcmu", "pcma"]
Scalar = str | int | float | bool | None


def _path(value: object) -> JsonPath:
    if not isinstance(value, str):
        raise ValueError("a path is a text such as $.type")  # noqa: TRY004 - pydantic collects no TypeError
    return parse_path(value)


Path = Annotated[JsonPath, pydantic.BeforeValidator(_path)]


def _template(template: Any) -> Any:
    check_template(template, OF_CALL)
    return template


def _answer(template: Any) -> Any:
    check_template(template, OF_CALL, paths=True)
    return template


Template = Annotated[Any, AfterValidator(_template)]
Answer = Annotated[Any, AfterValidator(_answer)]


class _SpecPart(BaseModel):
    """A part of a spec: a member that it does not know is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)


class Opening(_SpecPart):
    """The opening of the WebSocket."""

    query: dict[str, Template] = Field(default_factory=dict)  # added to the address, unless it has one of that name
    headers: dict[str, Template] = Field(default_factory=dict)
    subprotocols: tuple[str, ...] = ()
    send: tuple[Template, ...] = ()  # as soon as it is open


class CallersAudio(_SpecPart):
    """The caller's audio: binary messages, or base64 at the place `{audio}` of a JSON message."""

    encoding: Encoding = "pcm16"
    rate_hz: int = Field(default=16000, ge=8000, le=48000)
    frame_ms: Literal[10, 20, 40, 60] = 20
    frame: Literal["binary"] | dict[str, Any] = "binary"

    @model_validator(mode="after")
    def _check(self) -> "CallersAudio":
        if self.encoding != "pcm16" and self.rate_hz != 8000:
            raise ValueError(f"{self.encoding} has 8000 Hz, not {self.rate_hz}")
        if self.frame == "binary":
            return self
        check_template(self.frame, OF_FRAME | {AUDIO})
        placeholders = list(places(self.frame))
        if placeholders.count(AUDIO) != 1:
            raise ValueError("the frame has the place {audio} exactly once")
        if placeholders[-1] != AUDIO:
            raise ValueError("{audio} is the last place of the frame: what comes before it differs from call to call")
        return self


class TurnSpec(_SpecPart):
    """The messages with which the caller's turn begins, ends, and breaks into a reply."""

    control: Literal["server", "manual"] = "server"  # who ends it
    begin: tuple[Template, ...] = ()
    end: tuple[Template, ...] = ()
    interrupt: tuple[Template, ...] = ()


class ReplySpec(_SpecPart):
    """The reply's audio, and what ends a reply."""

    audio: Literal["binary", "json", "none"] = "binary"  # json: base64 at the path of a rule that means audio
    encoding: Encoding = "pcm16"
    rate_hz: int = Field(default=24000, ge=8000, le=48000)
    end: Literal["event", "silence"] = "event"


class Exists(_SpecPart):
    """Matches where there is a value, or where there is none."""

    exists: bool


class EventRule(_SpecPart):
    """The meaning of a message. It matches where every path of `when` leads to its value, or to one of its values."""

    when: dict[str, Scalar | list[Scalar] | Exists]
    is_: Meaning = Field(alias="is")
    text: Path | None = None
    whole: bool = False  # of partial: the text is the whole transcript so far, not what was added to it
    audio: Path | None = None
    response: Path | None = None
    item: Path | None = None
    message: Path | None = None
    code: Path | None = None
    status: Path | None = None
    latencies_ms: dict[str, Path] = Field(default_factory=dict)
    usage: dict[str, Path] = Field(default_factory=dict)
    metadata: dict[str, Path] = Field(default_factory=dict)
    fatal: bool = False
    send: tuple[Answer, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "EventRule":
        for path in self.when:
            parse_path(path)
        needed = {"partial": "text", "final": "text", "text": "text", "reasoning": "text", "mark": "text"}
        field = {**needed, "audio": "audio"}.get(self.is_)
        if field is not None and getattr(self, field) is None:
            raise ValueError(f"a message that means {self.is_} has its {field} at a path: add {field}: $.…")
        return self


class Spec(_SpecPart):
    """A whole wire."""

    name: str
    type: Path = Field(default_factory=lambda: parse_path("$.type"))  # the name of a message, where it has one
    event_id: Path | None = None  # where each event has an id of its own: a message that comes twice counts once
    open: Opening = Field(default_factory=Opening)
    audio: CallersAudio = Field(default_factory=CallersAudio)
    turn: TurnSpec = Field(default_factory=TurnSpec)
    reply: ReplySpec = Field(default_factory=ReplySpec)
    close: tuple[Template, ...] = ()
    events: tuple[EventRule, ...]

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        meanings = {rule.is_ for rule in self.events}
        if self.reply.end == "event" and self.reply.audio != "none" and "reply_done" not in meanings:
            raise ValueError(
                "no message means reply_done; name one, or let replies end by silence (reply.end: silence)"
            )
        if self.reply.audio == "json" and "audio" not in meanings:
            raise ValueError("reply.audio is json, and no message means audio")
        if self.reply.audio != "json" and "audio" in meanings:
            raise ValueError(f"a message means audio, and reply.audio is {self.reply.audio}: write reply.audio: json")
        return self


_MOST_FAULTS: Final = 50


def parse_spec(text: str, name: str) -> Spec:
    """Return the wire that a YAML text declares. Raises UsageError with one line for each fault."""
    content, lines = read_yaml(text, name)
    return spec_of(content, name, lines)


def spec_of(content: object, name: str, lines: Lines | None = None) -> Spec:
    """Return the wire that parsed YAML declares. Raises UsageError with one line for each fault."""
    try:
        return Spec.model_validate(content)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)[:_MOST_FAULTS]
        by_line = sorted((_line(fault, name, lines) for fault in faults), key=lambda entry: entry[0])
        raise UsageError("\n".join(dict.fromkeys(sentence for _, sentence in by_line))) from None


def _line(fault: Mapping[str, Any], name: str, lines: Lines | None) -> tuple[int, str]:
    """Return the line of a fault, 0 where it is not known, and the sentence about it."""
    location: tuple[str | int, ...] = tuple(fault["loc"])
    line, known = (None, location) if lines is None else lines.of(location)
    where = name if line is None else f"{name}:{line}"
    if fault["type"] == "missing":
        known = (*known, location[-1])
    field = ".".join(str(part) for part in known) or "the spec"
    if fault["type"] == "extra_forbidden":
        return line or 0, f"{where}: {field}: there is no such member"
    return line or 0, f"{where}: {field}: {reason_of(fault)}"
