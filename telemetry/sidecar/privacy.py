"""Redaction: what may not be in a store is removed from a request before any of it is logged, stored or forwarded.

`PrivacyRules` define what is kept of a name and a value, the functions after them apply these to the fields of OTLP,
and a `Redactor` to a whole body: if nothing is to be changed, it returns the same bytes. A store has a key for its
pseudonyms, a file that only its owner may read, and lists of names.
"""

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.personal_data import (
    KEY_BYTES,
    NO_NAMES,
    Names,
    identifies_person,
    is_card,
    is_pseudonym,
    label_without_personal_data,
    mark,
    pseudonym,
    text_without_personal_data,
)
from telemetry.sidecar.otlp.opening import Framed, OpenedRequest
from telemetry.sidecar.secret_files import SecretFileError, secret_content
from telemetry.sidecar.signals import Signal
from telemetry.store.private_files import fsync_directory, make_folder, write_durably
from telemetry.store.redaction import NameKind, framework_of, kinds_of_names

_CARD_FIGURES: Final = range(10**12, 10**19)
_NESTED: Final = ("array_value", "kvlist_value")


@dataclass(frozen=True, slots=True)
class PrivacyRules:
    """The options of redaction. `key` makes the pseudonyms of a store. `keep_text` keeps texts, without the personal
    data in them; `names` are names of people to remove from texts."""

    key: bytes = field(repr=False)
    keep_text: bool = False
    names: Names = NO_NAMES

    def text(self, text: str) -> str:
        """Return what is kept of a text if texts are kept."""
        return text_without_personal_data(text, self.names)

    def free_text(self, text: str) -> str:
        """Return what is kept of an arbitrary text: the message of a status, the description of a metric."""
        return self.text(text) if self.keep_text else ""

    def labeled(self, kind: NameKind, text: str) -> str | None:
        """Return what is kept of a text under a name of this kind; None if nothing is."""
        match kind:
            case NameKind.OWN:
                return text
            case NameKind.LABEL:
                return label_without_personal_data(text)
            case NameKind.ID:
                is_personal = not is_pseudonym(text) and identifies_person(text)
                return pseudonym(text, self.key) if is_personal else text
            case NameKind.PERSON:
                return pseudonym(text, self.key) if text else text
            case NameKind.REASON:
                return self.text(text)
            case NameKind.TEXT:
                return self.text(text) if self.keep_text else None
            case NameKind.PERSONAL:
                return None

    def keep(self, value: AnyValue, kind: NameKind) -> bool:
        """Remove from the value of an attribute, whose name is of this kind, what may not be stored; return False if
        none of it may."""
        if kind is NameKind.PERSONAL or (kind is NameKind.PERSON and value.WhichOneof("value") in _NESTED):
            return False
        return self._keep_value(value, kind)

    def _keep_value(self, value: AnyValue, kind: NameKind) -> bool:
        match value.WhichOneof("value"):
            case "string_value":
                text = value.string_value
                kept = self.labeled(kind, text)
                if kept is not None and kept != text:
                    value.string_value = kept
                return kept is not None
            case "bytes_value":
                return self._keep_bytes(value, kind)
            case "int_value":
                return self._keep_figure(value, kind, value.int_value)
            case "double_value":
                return not value.double_value.is_integer() or self._keep_figure(value, kind, int(value.double_value))
            case "array_value":
                return all(self._keep_value(item, kind) for item in value.array_value.values)
            case "kvlist_value":
                return self._keep_pairs(value, kind)
            case _:
                pass
        return True

    def _keep_bytes(self, value: AnyValue, kind: NameKind) -> bool:
        """Keep bytes that are not text, or whose text is kept as it is; treat others as text."""
        text = value.bytes_value.decode("utf-8", "surrogateescape")
        kept = self.labeled(kind, text)
        if kept is not None and kept != text:
            value.string_value = kept.encode("utf-8", "replace").decode()
        return kept is not None

    def _keep_figure(self, value: AnyValue, kind: NameKind, figure: int) -> bool:
        if kind is NameKind.PERSON:
            value.string_value = pseudonym(str(figure), self.key)
        elif kind is not NameKind.OWN and figure in _CARD_FIGURES and is_card(str(figure)):
            if self.labeled(kind, "") is None:
                return False
            value.string_value = mark("card")
        return True

    def _keep_pairs(self, value: AnyValue, kind: NameKind) -> bool:
        """Clean a list of pairs, whose keys are text themselves: without texts, only an empty list is kept."""
        pairs = value.kvlist_value.values
        if kind is NameKind.TEXT and not self.keep_text:
            return not pairs
        for pair in pairs:
            key = self.labeled(NameKind.LABEL if kind is NameKind.ID else kind, pair.key)
            if key is None or not self._keep_value(pair.value, kind):
                return False
            if key != pair.key:
                pair.key = key
        return True


_Pairs = Any  # protobuf's containers have no type that can be named


def clean_span(span: Span, framework: str, rules: PrivacyRules) -> None:
    """Remove from a span, its events, links and status what may not be stored."""
    _clean_text(span, "name", label_without_personal_data)
    _clean_state(span)
    clean_pairs(span.attributes, framework, rules)
    for event in span.events:
        _clean_text(event, "name", label_without_personal_data)
        clean_pairs(event.attributes, framework, rules)
    for link in span.links:
        _clean_state(link)
        clean_pairs(link.attributes, framework, rules)
    if span.status.message:
        _clean_text(span.status, "message", rules.free_text)


def clean_resource(resource: Resource, rules: PrivacyRules) -> None:
    """Remove from a resource what may not be stored."""
    clean_pairs(resource.attributes, "", rules)
    if "entity_refs" in resource.DESCRIPTOR.fields_by_name:
        resource.ClearField("entity_refs")


def clean_scope(scope: InstrumentationScope, framework: str, rules: PrivacyRules) -> None:
    """Remove from an instrumentation scope what may not be stored."""
    _clean_text(scope, "name", label_without_personal_data)
    _clean_text(scope, "version", label_without_personal_data)
    clean_pairs(scope.attributes, framework, rules)


def clean_metric(metric: Metric, framework: str, rules: PrivacyRules) -> None:
    """Remove from a metric, its points and their exemplars what may not be stored.

    A metric's description is the program's own text and is kept like a label.
    """
    for name in ("name", "description", "unit"):
        _clean_text(metric, name, label_without_personal_data)
    clean_pairs(metric.metadata, framework, rules)
    kind = metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points if kind is not None else ():
        clean_pairs(point.attributes, framework, rules)
        for exemplar in getattr(point, "exemplars", ()):
            clean_pairs(exemplar.filtered_attributes, framework, rules)


def clean_pairs(pairs: _Pairs, framework: str, rules: PrivacyRules) -> None:
    """Remove from attributes what may not be stored."""
    kinds, own = kinds_of_names(framework), NameKind.OWN
    left_out = [
        place
        for place, pair in enumerate(pairs)
        if (kind := kinds[pair.key]) is not own and not rules.keep(pair.value, kind)
    ]
    for place in reversed(left_out):
        del pairs[place]


def _clean_state(holder: Any) -> None:
    """Drop a trace state with personal data: it is useless without it."""
    if holder.trace_state and label_without_personal_data(holder.trace_state) != holder.trace_state:
        holder.trace_state = ""


def _clean_text(holder: Any, name: str, clean: Callable[[str], str]) -> None:
    text: Final = getattr(holder, name)
    kept = clean(text)
    if kept != text:
        setattr(holder, name, kept)


class Redactor:
    """Removes from requests what may not be stored, before they are logged, stored or forwarded."""

    def __init__(self, rules: PrivacyRules) -> None:
        self.rules = rules

    def redact_request(self, body: bytes, signal: Signal) -> bytes:
        """The body of an export request in protobuf, without what may not be stored; the same object if nothing was
        removed. Raises OtlpDecodeError if it is not such a request: then nothing of it can be stored either."""
        opened = OpenedRequest(body, signal, self)
        cut = opened.cut
        written = Framed(
            items=[b""] * opened.count,
            resource_of=cut.resource_of,
            scope_of=cut.scope_of,
            # Resources and scopes without items are skipped, and not written.
            resources=[b""] * len(cut.resources),
            scopes=[b""] * len(cut.scopes),
            resource_of_scope=cut.resource_of_scope,
            resource_schemas=[*map(self._clean_schema, cut.resource_schemas)],
            scope_schemas=[*map(self._clean_schema, cut.scope_schemas)],
        )
        kept = [False] * opened.count
        for place, resource, scope, item in opened.items(_written, _written, _written):
            of, within, kept[place] = cut.resource_of[place], cut.scope_of[place], True
            written.resources[of] = _as_sent(resource, cut.resources[of])
            written.scopes[within] = _as_sent(scope, cut.scopes[within])
            written.items[place] = _as_sent(item, cut.items[place])
        return body if written == cut else written.assembled(kept)

    def clean(self, message: Message, framework: str) -> None:
        """Remove from a span, a metric, a resource or a scope what may not be stored, in place."""
        match message:
            case Span():
                clean_span(message, framework, self.rules)
            case Metric():
                clean_metric(message, framework, self.rules)
            case Resource():
                clean_resource(message, self.rules)
            case InstrumentationScope():
                clean_scope(message, framework_of(message.name), self.rules)
            case _:
                raise TypeError(type(message))

    def _clean_schema(self, url: bytes) -> bytes:
        """The URL of a schema without personal data; the same object if it has none."""
        if not url:
            return url
        text = url.decode("utf-8", "replace")
        kept = label_without_personal_data(text)
        return url if kept == text and text.encode() == url else kept.encode()


def _written(message: Message, *_around: object) -> Message:
    message.DiscardUnknownFields()
    return message


def _as_sent(message: Message, payload: bytes) -> bytes:
    """Serialize a message; return the received bytes if they mean the same, as some senders order fields
    differently."""
    written = message.SerializeToString()
    if written != payload and len(written) == len(payload):
        with contextlib.suppress(DecodeError):
            return payload if type(message).FromString(payload) == message else written
    return written


KEY_NAME: Final = "pseudonyms.key"
_FILE_BYTES_MAX: Final = 4096
_SHIPPED: Final = "given-names.txt"


def redactor_of_store(store: Path, *, keep_text: bool = False, names: Path | None = None) -> Redactor:
    """Create the redactor of a store; `names` is a file with one name per line, in addition to the shipped names.
    Raises ConfigError if it cannot be read, and StoreError if the store's key cannot be used."""
    shipped = (files("telemetry") / "data" / _SHIPPED).read_text(encoding="utf-8")
    try:
        own = "" if names is None else names.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(names), [f"the list of names cannot be read ({error}); one a line, in UTF-8"]) from error
    lines = f"{shipped}\n{own}".splitlines()
    people = Names(line for line in lines if not line.startswith("#"))
    return Redactor(PrivacyRules(pseudonym_key(store), keep_text, people))


def pseudonym_key(store: Path) -> bytes:
    """The key of a store, created if it does not exist. Raises StoreError if it cannot be read or created, and if users
    other than its owner may read it."""
    path = store / KEY_NAME
    try:
        if not path.exists():
            _make(store, path)
        key = secret_content(path, _FILE_BYTES_MAX)
    except OSError as error:
        raise StoreError(f"{path}: the key of the store's pseudonyms cannot be made ({error.strerror})") from error
    except SecretFileError as error:
        raise StoreError(f"the key of the store's pseudonyms: {error}") from error
    if len(key) != KEY_BYTES:
        raise StoreError(
            f"{path}: has {len(key)} bytes, and the key of the store's pseudonyms has {KEY_BYTES}; restore it from a "
            "backup, or delete it: then the same people have other pseudonyms from now on"
        )
    return key


def _make(store: Path, path: Path) -> None:
    make_folder(store)
    temporary = path.with_name(f"{KEY_NAME}.{os.getpid()}.tmp")
    try:
        write_durably(temporary, secrets.token_bytes(KEY_BYTES))
        try:
            os.link(temporary, path)  # the first process has created it
        except FileExistsError:
            return
        fsync_directory(store)
    finally:
        temporary.unlink(missing_ok=True)
