"""The report page: one self-contained HTML file with embedded pictures and audio. Text from a manifest is escaped."""

import base64
import io
from collections.abc import Callable, Iterable
from html import escape
from typing import Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from corpora.manifest.manifest import Utterance
from corpora.manifest.validation import numbered
from corpora.rendering.render import Rendered
from corpora.reports import pictures
from corpora.reports.gather import Shown, ShownClip

MAX_ROWS: Final = 500
_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
.details, .muted { color: #777; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
figure { margin: 0; } figcaption { font-weight: 600; }
img { max-width: 100%; background: #fff; border-radius: 4px; }
article { border-top: 1px solid #8884; padding: 1rem 0; }
blockquote { margin: .3rem 0; font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid #8883; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
audio { width: 100%; max-width: 40rem; height: 2.2rem; }
"""


def page(shown: Shown, progress: Callable[[int, int], None] | None = None) -> str:
    """Build the page. `progress(done, total)` is called after each clip."""
    corpus = shown.corpus
    articles: list[str] = []
    for done, clip in enumerate(shown.clips, start=1):
        articles.append(_article(clip))
        if progress is not None:
            progress(done, len(shown.clips))
    title = escape(corpus.name)
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1><p class='details'>{_details(shown)}</p>",
            "<h2>Utterances</h2><div class='figures'>",
            *_distributions(shown),
            "</div>",
            f"<h2>{len(articles)} clips</h2>",
            "<p class='muted'>Red lines are the first and the last speech sample.</p>" if articles else "",
            *articles,
            "<h2>All utterances</h2>",
            _table(shown),
            "</body></html>",
        ]
    )


def _details(shown: Shown) -> str:
    corpus = shown.corpus
    licenses = ", ".join(f"{escape(name)} ({count})" for name, count in shown.by_license)
    lengths = ", ".join(f"{count} {name}" for name, count in shown.by_length)
    return (
        f"{escape(corpus.kind)} speech · {numbered(len(corpus.utterances), 'utterance')} ({lengths}) · "
        f"{shown.speech_s / 60:.1f} minutes of speech · {licenses} · {escape(shown.bounds_sentence)}"
    )


def _distributions(shown: Shown) -> Iterable[str]:
    utterances = shown.corpus.utterances
    yield _figure("Lengths", pictures.lengths([utterance.speech_s for utterance in utterances]))
    yield _figure("Domains", pictures.counts(shown.by_domain))
    yield _figure("Speakers", pictures.counts(shown.by_speaker))
    floors = [u.bounds_confidence_db for u in utterances if u.bounds_confidence_db is not None]
    if floors:
        yield _figure("Speech above noise floor", pictures.floors(floors))
    for position, profile in enumerate(shown.profiles, start=1):
        obtained = [clip.versions[position].snr_obtained_db for clip in shown.clips]
        known = [snr for snr in obtained if snr is not None]
        if known and profile.snr_db is not None:
            caption = f"Measured SNR, {escape(profile.label)}"
            yield _figure(caption, pictures.obtained_snr(known, profile.snr_db))


def half_width(stated_ms: float | None) -> str:
    """Format the uncertainty of a bound in ms."""
    return "unknown" if stated_ms is None else f"{stated_ms:g}"


def _figure(caption: str, uri: str) -> str:
    return f'<figure><figcaption>{caption}</figcaption><img alt="{caption}" src="{uri}"></figure>'


def _article(clip: ShownClip) -> str:
    utterance, clean = clip.utterance, clip.versions[0]
    details = [utterance.speaker, utterance.domain, f"{utterance.speech_s:.2f} s", utterance.length, utterance.license]
    ends_ns = (clean.speech_start_uncertainty_ns, clean.speech_end_uncertainty_ns)
    start, end = (half_width(None if stated_ns is None else stated_ns / 1e6) for stated_ns in ends_ns)
    details.append(f"speech starts ± {start} ms, ends {'exactly' if clean.end_is_exact else f'± {end} ms'}")
    text = f"<blockquote>{escape(utterance.text)}</blockquote>" if utterance.text is not None else ""
    head = f"<h3 id='{escape(utterance.id)}'>{escape(utterance.id)}</h3>{text}"
    return (
        f"<article>{head}<p class='details'>{escape(' · '.join(details))}</p>"
        + "".join(_version(version) for version in clip.versions)
        + "</article>"
    )


def _version(rendered: Rendered) -> str:
    samples = rendered.pcm.astype(np.float64) / 32_768.0
    picture = pictures.clip(samples, rendered.rate_hz, rendered.speech_start_sample, rendered.speech_end_sample)
    caption = f"{escape(rendered.profile.label)} {_obtained(rendered)}"
    return (
        f"{_figure(caption, picture)}"
        f'<audio controls preload="none" src="{_audio(rendered.pcm, rendered.rate_hz)}"></audio>'
    )


def _obtained(rendered: Rendered) -> str:
    obtained = rendered.obtained
    parts = [pictures.with_minus(f"level {obtained.level_dbov:.1f} dBov")]
    if obtained.snr_db is not None:
        parts.append(pictures.with_minus(f"SNR {obtained.snr_db:.2f} dB ({rendered.snr_asked_db:g} requested)"))
    if obtained.loss_ratio is not None:
        parts.append(f"{obtained.loss_ratio:.1%} of packets lost")
    if obtained.late_ratio is not None:
        parts.append(f"{obtained.late_ratio:.1%} late")
    if obtained.clipped_ratio is not None:
        parts.append(f"{obtained.clipped_ratio:.1%} of samples clipped")
    return f"<span class='muted'>({', '.join(parts)})</span>"


def _audio(pcm: NDArray[np.int16], rate_hz: int) -> str:
    file = io.BytesIO()
    soundfile.write(file, pcm, rate_hz, format="FLAC", subtype="PCM_16")
    return "data:audio/flac;base64," + base64.b64encode(file.getvalue()).decode()


def _table(shown: Shown) -> str:
    has_recorded_ends = shown.corpus.edges == "recorded"

    def end_cell(u: Utterance) -> str:
        return f"<td class='n'>{half_width(u.speech_end_uncertainty_ms)}</td>" if has_recorded_ends else ""

    end_head = "<th class='n'>end ±, ms</th>" if has_recorded_ends else ""
    rows = [
        f"<tr><td>{escape(u.id)}</td><td>{escape(u.text or '')}</td><td>{escape(u.speaker)}</td>"
        f"<td>{escape(u.domain)}</td><td class='n'>{u.speech_s:.2f}</td>"
        f"<td class='n'>{'' if u.bounds_confidence_db is None else f'{u.bounds_confidence_db:g}'}</td>"
        f"<td class='n'>{half_width(u.speech_start_uncertainty_ms)}</td>{end_cell(u)}</tr>"
        for u in shown.corpus.utterances[:MAX_ROWS]
    ]
    hidden = len(shown.corpus.utterances) - len(rows)
    more = f"<p class='muted'>… and {hidden} more in the manifest.</p>" if hidden > 0 else ""
    return (
        "<table><thead><tr><th>id</th><th>text</th><th>speaker</th><th>domain</th><th class='n'>speech, s</th>"
        f"<th class='n'>above floor, dB</th><th class='n'>start ±, ms</th>{end_head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{more}"
    )
