"""What a service states of itself is kept with the turn that it is about, apart from what was measured."""

from dataclasses import replace

from loadtest.conversation.exchange import BeginTurn, Say
from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.protocols.base import EventKind, SpokenText, VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, World, event, make_plan, reply


def report(response_id: str | None = None, **latencies_ms: int) -> VoiceEvent:
    stated = {name: value * MS for name, value in latencies_ms.items()}
    return event(EventKind.SERVICE_REPORT, response_id=response_id, service_ns=stated)


def turn(world: World, index: int = -1) -> Turn:
    return build_turn(world.exchanges[index], CALL, OPTIONS)


def test_latencies_are_kept_as_stated_and_change_no_figure() -> None:
    plain = turn(World(make_plan()).speak().after(300).hear(*reply(200)).after(300))
    world = World(make_plan()).speak().after(300).hear(report(llm_ttft=187, tts_ttfb=90))
    world.hear(*reply(200)).after(300)
    stated = turn(world)
    assert dict(zip(stated.service_reported, stated.service_reported_ns, strict=True)) == {
        "llm_ttft": 187 * MS,
        "tts_ttfb": 90 * MS,
    }
    assert stated.service_latency_reports == 1
    for name in ("first_audio_perf_ns", "llm_first_token_perf_ns", "tts_first_chunk_perf_ns", "asr_final_perf_ns"):
        assert getattr(stated, name) == getattr(plain, name)
    assert plain.service_reported == plain.service_reported_ns == ()


def test_the_first_value_of_a_name_is_kept_and_the_number_of_names_is_bounded() -> None:
    world = World(make_plan()).speak().hear(report(tts=90), report(tts=500))
    world.hear(report(**{f"n{number}": 1 for number in range(100)}), *reply(200)).after(300)
    stated = turn(world)
    assert len(stated.service_reported) == 32
    assert dict(zip(stated.service_reported, stated.service_reported_ns, strict=True))["tts"] == 90 * MS


def test_latencies_may_come_with_any_event() -> None:
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed", service_ns={"total": 5 * MS})
    world = World(make_plan()).speak().hear(*reply(200)[:2], done).after(300)
    assert turn(world).service_reported == ("total",)


def test_cache_route_and_tokens_are_those_of_the_turn() -> None:
    metrics = VoiceEvent(
        EventKind.SERVICE_REPORT,
        "metrics",
        metadata={"voice.cache_hit": "true", "voice.route": "local"},
        usage={"output_text_tokens": 12},
    )
    stated = turn(World(make_plan()).speak().hear(metrics, *reply(200)).after(300))
    assert (stated.cache_hit, stated.route, stated.llm_tokens) == (True, "local", 12)


def test_a_report_between_turns_belongs_to_none() -> None:
    world = World(make_plan(2)).speak().hear(*reply(200)).after(300)
    world.hear(report(late=1)).speak().hear(*reply(200, "r2")).after(300)
    assert [turn(world, index).service_reported for index in (0, 1)] == [(), ()]


def test_until_a_caller_who_interrupts_has_asked_a_report_is_about_the_reply_before() -> None:
    plan = make_plan(2)
    second = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=300 * MS))
    world = World(replace(plan, turns=(plan.turns[0], second))).speak().hear(*reply(3_000)[:2]).after(300)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().hear(report(old=1)).after(600).speech_ends()
    world.hear(report("r1", older=2), report(new=3), *reply(200, "r2")).after(4_000)
    assert [turn(world, index).service_reported for index in (0, 1)] == [("old", "older"), ("new",)]


def test_what_the_caller_is_about_to_say_comes_before_its_first_frame() -> None:
    world = World(make_plan()).after(500)
    begins, says = world.actions
    assert isinstance(begins, BeginTurn)
    assert isinstance(says, Say)
    assert begins.words == SpokenText("turn the light on", "en-US", 100 * MS, "u1")


def test_headers_of_the_connection_belong_to_the_first_turn_and_a_stages_to_its_own() -> None:
    call = replace(CALL, endpoint_headers={"upgrade.server": "uvicorn"})
    world = World(make_plan(2)).speak().after(300)
    report = {"llm.x-request-id": "req-1", "session.id": "s", "voice.route": "local"}
    world.hear(VoiceEvent(EventKind.SERVICE_REPORT, "llm", metadata=report), *reply(200)).after(300)
    world.speak().after(300).hear(*reply(200, response_id="r2")).after(300)
    first, second = (build_turn(exchange, call, OPTIONS) for exchange in world.exchanges)
    assert first.endpoint_headers == ("upgrade.server", "llm.x-request-id")
    assert first.endpoint_header_values == ("uvicorn", "req-1")
    assert second.endpoint_headers == second.endpoint_header_values == ()


def test_partial_transcripts_are_kept_with_their_times_where_texts_are() -> None:
    world = World(make_plan()).speak()
    world.hear(event(EventKind.ASR_PARTIAL, text="turn")).after(40)
    world.hear(event(EventKind.ASR_PARTIAL, text=" it")).hear(event(EventKind.ASR_FINAL, text="turn it")).after(60)
    world.hear(event(EventKind.ASR_PARTIAL, text="on")).hear(event(EventKind.ASR_FINAL, text="on"))
    world.hear(*reply(200)).after(300)
    kept = build_turn(world.exchanges[-1], CALL, replace(OPTIONS, keep_transcripts=True))
    assert kept.asr_partials_pii == ("turn", "turn it", "turn it on"), "each the whole text so far"
    first, second, third = kept.asr_partials_after_ns
    assert (second - first, third - second) == (40 * MS, 60 * MS)
    assert kept.speech_start_perf_ns is not None
    assert kept.speech_start_perf_ns + first == kept.asr_first_partial_perf_ns
    plain = turn(world)
    assert plain.asr_partials_pii == plain.asr_partials_after_ns == ()
