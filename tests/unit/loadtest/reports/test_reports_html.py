"""The report of a run as one HTML file: what it says first, what it never claims, and others' text in it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from loadtest.reports.html.elements import text_of
from loadtest.reports.html.page import as_html, draw_waterfall, longest_stage, trust, turn_heading, view_ns
from loadtest.reports.html.pictures import histogram, over_time
from loadtest.reports.markdown import as_markdown
from loadtest.reports.run_outcome import run_outcome_for
from loadtest.reports.run_report import RunPictures, RunReport, SlowTurn
from loadtest.reports.summary import summary_object
from telemetry.model.bounds import MeasuredWithin
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import waterfall
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import judge
from telemetry.store.answers import ContradictedValue, Contradictions, RemarkCount, ShareByName, StageStats, Summary
from telemetry.store.questions.timelines import TimelinePoint
from tests.contrast import contrast
from tests.fixtures_turns import exchange
from tests.unit.loadtest.reports import reports_material as material
from tests.unit.loadtest.reports.reports_material import LIMITED, OBJECTIVES, judged

# A page with all its pictures takes a second of a processor.
pytestmark = pytest.mark.slow

MS = material.MS
HOSTILE = "</style><script>alert(1)</script><img src=http://e/x>\" onload='x'&\x1b[2J"
VOID = {"meta", "br", "img", "input", "link", "hr"}


def slow(index: int = 1, **changes: Any) -> SlowTurn:
    client, service = exchange(index, **changes)
    return SlowTurn(turn=client, waterfall=waterfall(client, service), has_both_sides=True)


def pictures(turns: int = 240, **changes: Any) -> RunPictures:
    values = [float(300 + 37 * index % 700) * MS for index in range(turns)]
    dots = [(1_795_000_000_000_000_000 + index * 10**9, value) for index, value in enumerate(values)]
    whole = RunPictures(
        timeline=[TimelinePoint(dots[0][0] + slot * 10**10, 10, 5e8, None, None, slot % 4) for slot in range(24)],
        dots=[*dots, (dots[-1][0] + 10**9, None)],
        values_ns=values,
        stages={name: StageStats(name, 240, 100.0 * MS, 200.0 * MS) for name in ("endpointing", "llm")},
        slowest=[slow()],
    )
    return replace(whole, **changes)


def made(good: int = 181, eligible: int = 181, summary: Summary | None = None, **changes: Any) -> RunReport:
    """A judged run with pictures; `changes` are fields of its report."""
    return replace(judged(good, eligible, summary), **{"pictures": pictures(), **changes})


class _Reading(HTMLParser):
    """The page as a browser parses it: its balanced elements, their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data)


def read(report: RunReport) -> _Reading:
    reading = _Reading()
    reading.feed(as_html(report))
    assert reading.open == [], "every element is closed"
    return reading


def words(report: RunReport) -> str:
    return re.sub(r"\s+", " ", " ".join(read(report).words))


def test_verdict_comes_before_objectives_pictures_and_evidence() -> None:
    text = words(made(good=100))
    parts = ("Missed", "missed", "Objectives", "Voice to voice over time", "Stages against their budget")
    places = [text.index(part) for part in (*parts, "Distribution", "The slowest turns", "How well this was measured")]
    assert places == sorted(places)
    assert "✕ missed The caller hears an answer in time 95 % of turns: voice to voice at most 800 ms: 55.2 %" in text
    assert "p99 is bad: 1,204 ms (the slowest 1 % of the turns); p95 is within: 800 ms" in text


@pytest.mark.parametrize(
    "report",
    [made(), made(good=1), made(summary=material.empty_summary(), pictures=RunPictures())],
    ids=["met", "missed", "nothing"],
)
def test_report_loads_nothing_and_has_no_script_by_its_policy(report: RunReport) -> None:
    reading = read(report)
    assert not {tag for tag, _ in reading.elements} & {"script", "img", "link", "iframe", "object", "a", "image", "use"}
    for _, attributes in reading.elements:
        assert not {"src", "href", "style", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    policy = next(attrs["content"] for _, attrs in reading.elements if attrs.get("http-equiv") is not None)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"url\(|@import", as_html(report))


@pytest.mark.parametrize(
    ("report", "word"),
    [
        (replace(judged(**LIMITED), pictures=pictures()), "Not judged: the load generator was the limit"),
        (made(good=4, eligible=4), "Undecided"),
        (made(good=0, eligible=0, summary=material.empty_summary(), pictures=RunPictures()), "Undecided"),
    ],
    ids=["limited", "few", "none"],
)
def test_report_without_knowledge_claims_nothing(report: RunReport, word: str) -> None:
    assert word in words(report)
    assert list(classes(report, "met")) == list(classes(report, "missed")) == []
    assert not re.search(r"\bmet\b|error budget|is bad", words(report))


def classes(report: RunReport, wanted: str) -> Iterator[str]:
    """The classes of the elements that have one of this name."""
    class_names = (attributes.get("class") or "" for _, attributes in read(report).elements)
    return (names for names in class_names if wanted in names.split())


def test_rate_in_characters_is_called_character_error_rate() -> None:
    whole = material.summary()
    assert "Word error rate by profile" in words(made(summary=whole))
    thai = tuple(replace(condition, characters=condition.words) for condition in whole.wer_by_condition)
    text = words(made(summary=replace(whole, wer_by_condition=thai)))
    assert "Character error rate by profile" in text
    assert "profile cer 95 % interval characters turns" in text
    assert "word error rate" not in text.lower()


def test_only_a_run_that_met_everything_is_green() -> None:
    assert list(classes(made(), "verdict")) == ["verdict met"]
    verdicts = judge(
        OBJECTIVES, lambda objective: EligibleTurns(181 if objective.metric == "voice_to_voice" else 1, 181)
    )
    mixed = replace(made(), verdicts=verdicts)
    outcome = run_outcome_for(run=mixed.run, summary=mixed.summary, verdicts=mixed.verdicts)
    mixed = replace(mixed, run_outcome=outcome)
    assert list(classes(mixed, "verdict")) == ["verdict missed"]
    assert list(classes(mixed, "chip")) == ["chip missed", "chip met"], "the missed ones come first"


def test_text_of_others_stays_text() -> None:
    named = [replace(OBJECTIVES[0], display_name=HOSTILE)]
    cohorts = tuple(replace(cohort, cohort=HOSTILE) for cohort in material.summary().cohorts)
    routes = ShareByName(total=1, reported=1, counts={HOSTILE: 1})
    report = made(
        summary=material.summary(cohorts=cohorts, routes=routes),
        objectives=named,
        verdicts=judge(named, lambda _: EligibleTurns(1, 181)),
        pictures=pictures(slowest=[slow(utterance_id=HOSTILE, cohort=HOSTILE, model=HOSTILE)]),
        run=material.run_info(target=f"ws://h/{HOSTILE}", run_id=HOSTILE, scenario=HOSTILE),
    )
    page, reading = as_html(report), read(report)
    assert "<script" not in page
    assert "\x1b" not in page
    assert not [1 for _, attributes in reading.elements if set(attributes) & {"onload", "src"}]
    assert words(report).count("</style><script>alert(1)</script>") >= 7


def test_every_picture_has_a_label_a_narrow_twin_and_a_table() -> None:
    reading = read(made())
    drawn = [attributes for tag, attributes in reading.elements if tag == "svg"]
    assert [attributes["class"] for attributes in drawn] == ["wide", "narrow"] * (len(drawn) // 2)
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawn)
    captions = [tag for tag, _ in reading.elements].count("caption")
    assert captions >= len(drawn) // 2


def test_each_of_the_slowest_turns_is_drawn_with_its_own_stages() -> None:
    lengths = {"2,900 ms": 2_900.0, "1,700 ms": 1_700.0, "800 ms": 800.0}
    turns = [slow(index, llm_ms=llm_ms) for index, llm_ms in enumerate(lengths.values())]
    articles = re.findall(r"<article>(.*?)</article>", as_html(made(pictures=pictures(slowest=turns))), re.DOTALL)
    assert len(articles) == len(turns)
    for article, length in zip(articles, lengths, strict=True):
        wide, narrow = re.findall(r"<svg ([^>]*)>(.*?)</svg>", article, re.DOTALL)
        for attributes, drawn in (wide, narrow):
            assert 'role="img"' in attributes
            assert 'aria-label="One turn on one clock; the table has its figures"' in attributes
            assert f"LLM first token, reported by the service: {length}" in drawn
        assert (wide[0].count('class="wide"'), narrow[0].count('class="narrow"')) == (1, 1)


def test_rolling_percentiles_are_those_of_their_windows() -> None:
    rng = np.random.default_rng(3)
    values = rng.lognormal(20, 0.4, 400)
    shown = over_time([], [(index * 10**9, float(value)) for index, value in enumerate(values)])
    assert list(shown.curves) == ["p50", "p95", "p99"]
    size = {"p50": 33, "p95": 33, "p99": 100}
    for name, (points,) in shown.curves.items():
        first, last, n = points[0], points[-1], size[name]
        fraction = int(name[1:]) / 100
        assert first == (pytest.approx((n - 1) / 2), pytest.approx(np.quantile(values[:n], fraction)))
        assert last == (pytest.approx(399 - (n - 1) / 2), pytest.approx(np.quantile(values[-n:], fraction)))


def test_few_turns_have_no_curve_and_many_use_store_curve() -> None:
    few = over_time([], [(index, 5e8) for index in range(19)])
    assert (few.curves, len(few.dots)) == ({}, 19)
    slots = [(10, 5e8, None), (30, 5e8, 6e8), (0, None, None), (30, 5e8, 7e8)]
    timeline = [TimelinePoint(i * 10**9, n, p50, p95, None, None) for i, (n, p50, p95) in enumerate(slots)]
    many = over_time(timeline, [])
    assert many.curves == {
        "p50": [[(0.0, 5e8), (1.0, 5e8)], [(3.0, 5e8)]],
        "p95": [[(1.0, 6e8)], [(3.0, 7e8)]],
    }, "a slot without a figure is a gap, not a line across it"


def test_histogram_counts_values_once_in_bins_of_round_width() -> None:
    values = np.random.default_rng(5).lognormal(20, 0.5, 1_000)
    bins = histogram([float(value) for value in values])
    assert bins is not None
    edges = bins.low_ns + bins.width_ns * np.arange(len(bins.counts) + 1)
    assert list(bins.counts) == list(np.histogram(values, edges)[0])
    assert sum(bins.counts) == 1_000
    assert str(round(bins.width_ns / MS))[0] in "125"
    assert histogram([]) is None
    one = histogram([5e8])
    assert one is not None
    assert one.counts == (1,)
    talk_over = histogram([-2e8, 3e8])
    assert talk_over is not None
    assert talk_over.low_ns <= -2e8


def test_a_slow_turn_names_the_stage_that_took_most_of_it() -> None:
    turn = slow(llm_ms=2_900.0)
    assert turn_heading(turn).startswith("3,2")
    assert turn_heading(turn).endswith(": LLM first token took 2,900 ms")
    low, high = view_ns(turn.waterfall)
    assert low < 0 < 3_200 * MS < high
    client, _ = exchange(1, llm_ms=50.0, network_ms=900.0)
    alone: Turn = client
    longest = longest_stage(waterfall(alone, None))
    assert longest is not None
    assert longest.source == "client"
    assert "svg" in draw_waterfall(turn.waterfall)


def test_trust_says_what_is_invalid_lost_and_calibrated() -> None:
    assert trust(made()) == "1 of 182 turns invalid (1 not said as recorded) · telemetry complete · not calibrated"
    lost = material.summary(loss=replace(material.summary().loss, missing=3))
    assert "3 turns lost" in trust(made(summary=lost))


def test_a_name_is_escaped_and_on_one_line() -> None:
    assert text_of("a<b>\n&") == "a&lt;b&gt; &amp;"


def _colors(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "paper"])
def test_text_and_graphics_have_contrast_of_wcag_aa(theme: int) -> None:
    style = files("loadtest.reports.html").joinpath("style.css").read_text(encoding="utf-8")
    colors = _colors(re.findall(r":root \{(.*?)\}", style, re.DOTALL)[theme])
    paper = colors["paper"]
    for name in ("ink", "soft", "met", "missed", "open", "budget"):
        assert contrast(colors[name], paper) >= 4.5, name
    for name in ("met", "missed", "open"):
        assert contrast(colors[name], colors[f"{name}-paper"]) >= 4.5, name
        assert contrast(colors["ink"], colors[f"{name}-paper"]) >= 4.5, name
    stages = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")
    for name in ("p50", "p95", "p99", "dot", "calls", "edge", "speech", "playing", *stages):
        assert contrast(colors[name], paper) >= 3, name
    for name in ("endpointing", "asr", "llm", "tts"):
        assert contrast(colors["on-stage"], colors[name]) >= 4.5, name


def test_remark_on_answers_is_in_page_markdown_and_json() -> None:
    remark = "the endpoint cut its reply short (max_output_tokens)"
    report = made(summary=material.summary(remarks=(RemarkCount(remark, 7),)))
    assert remark in words(report)
    assert "| 7 | the endpoint cut its reply short (max\\_output\\_tokens) |" in as_markdown(report)
    assert summary_object(report)["remarks"] == [{"remark": remark, "turns": 7}]


def test_values_that_cannot_be_are_in_html_and_markdown() -> None:
    values = (ContradictedValue("service", "<b>", "longer_than_span", 3),)
    report = made(summary=replace(material.summary(), contradictions=Contradictions(values)))
    expected = "3 impossible values (3 × <b>, reported: longer than the span that states it)"
    assert expected.replace("<", "&lt;").replace(">", "&gt;") in as_html(report)
    assert "impossible value" in as_markdown(report)


def test_measurement_bounds_are_in_page_markdown_and_json() -> None:
    summary = material.summary()
    within = MeasuredWithin((5.9e8, 6.124e8), None, None, None)
    heard = replace(summary.metrics["voice_to_voice"], measured_within=within)
    cohort = replace(summary.cohorts[0], metrics={"voice_to_voice": heard})
    report = made(
        summary=replace(
            summary,
            metrics={**summary.metrics, "voice_to_voice": heard},
            cohorts=(cohort, summary.cohorts[1]),
        )
    )
    line = "p50 612 ms (measured within 590–612)"
    assert f"Voice to voice: {line}" in words(report)
    assert f"control: {line}" in words(report)
    assert f"- Voice to voice: {line}" in as_markdown(report).splitlines()
    stated = summary_object(report)["metrics"]["voice_to_voice"]["measured_within"]
    assert (stated["p50_s"], stated["p95_s"]) == ([0.59, 0.6124], None)


def test_sampling_interval_is_in_page_markdown_and_json() -> None:
    report = made(174)
    verdicts = [replace(verdict, sampling=(0.9, 0.985)) for verdict in report.verdicts]
    report = replace(report, verdicts=verdicts)
    sentence = "96.1 % good; 95 % sampling interval by call 90 % to 98.5 %, which does not change the verdict"
    assert sentence in words(report)
    assert sentence in as_markdown(report)
    first, *_ = summary_object(report)["objectives"]
    assert (first["ratio"], first["sampling_interval"]) == (174 / 181, [0.9, 0.985])
    assert summary_object(made(174))["objectives"][0]["sampling_interval"] is None


def test_a_slow_turn_says_within_what_it_was_measured() -> None:
    turn = slow(
        llm_ms=2_900.0,
        speech_end_uncertainty_ns=0,
        speech_end_later_ns=0,
        first_audio_earlier_ns=0,
        stamp_error_ns=0,
        held_up_ns=60 * MS,
    )
    waited = METRICS["voice_to_voice"].value(turn.turn)
    assert waited is not None
    high, low = f"{waited / MS:,.0f}", f"{waited / MS - 60:,.0f}"
    assert turn_heading(turn).startswith(f"{high} ms (measured within {low}–{high}): ")
    report = made()
    shown = words(replace(report, pictures=replace(report.pictures, slowest=[turn])))
    assert f"Voice to voice {high} ms, within {low}–{high}" in shown
