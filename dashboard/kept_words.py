"""What was kept of a turn besides its figures: words, and why there is no audio; as HTML."""

from datetime import UTC, datetime

from dashboard.markup import escape
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, milliseconds
from telemetry.model.turns import Turn
from telemetry.store.recordings.excerpt import CallExcerpt

NOTHING_KEPT = (
    "No audio and no words were kept of this call: a run keeps them with <code>--keep-audio</code> and "
    "<code>--keep-text</code>, for as long as <code>--keep-for</code> says."
)


def notices(excerpt: CallExcerpt | None, kept_in: str | None) -> str:
    """One line on what was kept, where it is, and until when."""
    if excerpt is None and kept_in is not None:
        return _hint(
            f"Nothing of this call is kept beside this store. The run kept calls on the machine of its callers, in "
            f"<code>{escape(kept_in)}</code>; they are removed when their time is over."
        )
    if excerpt is None:
        return _hint(NOTHING_KEPT)
    lines: list[str] = []
    if excerpt.fault:
        lines.append(f"The recording cannot be played: {escape(excerpt.fault)}.")
    if excerpt.note:
        lines.append(f"{escape(excerpt.note[:1].upper() + excerpt.note[1:])}.")
    if excerpt.missing:
        lines.append(f"Some of the audio is missing: {escape(excerpt.missing[0][2])}.")
    if excerpt.expires_unix_ns:
        until = datetime.fromtimestamp(excerpt.expires_unix_ns // NS_PER_S, UTC)
        lines.append(f"Kept until {until:%d %b %Y %H:%M} UTC.")
    return _hint(" ".join(lines)) if lines else ""


def _hint(sentence: str) -> str:
    return f'<div class="vp hint vp-kept">{sentence}</div>'


def words(client: Turn | None, excerpt: CallExcerpt | None) -> str:
    """What was said, how it was understood and what was answered, as far as it was kept."""
    kept = None if excerpt is None else excerpt.turn
    in_store = None if client is None else client.transcript_pii
    transcript = (None if kept is None else kept.transcript) or in_store
    pairs = [
        ("said", kept.asked if kept is not None else None),
        ("understood", transcript),
        ("answered", kept.reply if kept is not None else None),
    ]
    shown = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in pairs if text)
    if not shown:
        return ""
    partials = kept.partials if kept is not None else ()
    steps = "".join(f"<li><b>{milliseconds(each.after_ns)}</b> {escape(each.text)}</li>" for each in partials)
    many = formatting.count(len(partials), "partial transcript")
    listed = f"<details><summary>{many}</summary><ol>{steps}</ol></details>" if steps else ""
    return f'<div class="vp vp-words"><h2>Words</h2><dl>{shown}</dl>{listed}</div>'
