"""What reads the usual messages in one step changes nothing: any messages in any order give the same without it."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.loadtest.protocols.contract.line import Line
from tests.unit.loadtest.protocols.contract.two_ways import WIRES, Step, assert_same, audible_steps, conversation
from tests.unit.loadtest.protocols.contract.wire_script import UTTERANCE

# By text, because they are no values of Python, or lose by being one.
ODD_VALUES: Final = (
    *(
        "0.0",
        "-0",
        "-0.0",
        "1e2",
        "1E400",
        "NaN",
        "-Infinity",
        "01",
        "1.",
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[[0]]",
    ),
    *(
        "9007199254740993",
        "9007199254740993.0",
        "1.0000000000000000001",
        "18446744073709551615",
        "18446744073709551616",
    ),
    *("-9223372036854775809", "1180591620717411303425", "9" * 400, "[" * 1100 + "]" * 1100),
    *(
        '""',
        '"*"',
        '"AAA"',
        '"AAAA"',
        '"AB=="',
        '"AA==AAAA"',
        '"AAAA\\n"',
        '"AA AA"',
        '"AA\\/A"',
        '"\\u0041AAA"',
        '"-_-_"',
    ),
    *('"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', '"\x01"', '"audio"', '"1"'),
)
BAD_UTF8: Final = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
ODD_MEMBERS: Final = (
    '"alignment":null',
    '"sequenceNumber":7',
    '"event_id":"e1"',
    '"x":"\\ud800"',
    '"x":1e400',
    '"\x01":1',
)


def members(raw: bytes) -> list[tuple[str, str]] | None:
    """A JSON object's members as texts; None for anything else."""
    try:
        fields = json.loads(raw)
    except ValueError:
        return None
    return [(json.dumps(key), json.dumps(each)) for key, each in fields.items()] if isinstance(fields, dict) else None


def joined(pairs: Sequence[tuple[str, str]], between: str = ",") -> bytes:
    return ("{" + between.join(f"{key}:{each}" for key, each in pairs) + "}").encode(errors="surrogatepass")


@st.composite
def rewritten(draw: st.DrawFn, raw: bytes) -> bytes:
    """A JSON object written in another way, or with something else in it; within one of its objects, perhaps."""
    pairs = members(raw)
    if not pairs:
        return raw
    inner = [at for at, (_, each) in enumerate(pairs) if each.startswith("{")]
    if inner and draw(st.booleans()):
        at = draw(st.sampled_from(inner))
        pairs[at] = (pairs[at][0], draw(rewritten(pairs[at][1].encode())).decode(errors="surrogateescape"))
        return joined(pairs).replace(b"\xed\xb3", b"\xff")
    at = draw(st.integers(0, len(pairs) - 1))
    key, each = pairs[at]
    how = draw(st.sampled_from(["order", "spaces", "value", "again", "again-odd", "extra", "gone", "utf8", "key"]))
    if how == "order":
        pairs = draw(st.permutations(pairs))
    elif how == "spaces":
        return joined(pairs, draw(st.sampled_from([" , ", ",\n\t\r", ", \v", ",\f"])))
    elif how == "value":
        pairs[at] = (key, draw(st.sampled_from(ODD_VALUES)))
    elif how == "again":
        pairs.insert(draw(st.integers(0, len(pairs))), (key, each))
    elif how == "again-odd":
        pairs.insert(draw(st.integers(0, len(pairs))), (key, draw(st.sampled_from(ODD_VALUES))))
    elif how == "extra":
        pairs.insert(at, tuple(draw(st.sampled_from(ODD_MEMBERS)).split(":", 1)))  # type: ignore[arg-type]  # two
    elif how == "gone":
        del pairs[at]
    elif how == "utf8":
        pairs[at] = (key, '"BAD"') if draw(st.booleans()) else ('"BAD"', each)
        return joined(pairs).replace(b"BAD", draw(st.sampled_from(BAD_UTF8)))
    else:
        pairs[at] = (f'"\\u{ord(key[1]):04x}{key[2:]}', each)
    return joined(pairs)


@st.composite
def mutated(draw: st.DrawFn, message: Step) -> str | bytes:
    """A message, perhaps changed, as text or as bytes."""
    assert not isinstance(message, tuple)
    raw = message.encode() if isinstance(message, str) else message
    how = draw(st.sampled_from(["same", "same", "rewritten", "rewritten", "changed", "cut", "longer"]))
    if how == "rewritten":
        line, newline, rest = raw.partition(b"\n") if not raw.startswith(b"{\n") else (raw, b"", b"")
        raw = draw(rewritten(line)) + newline + rest
    elif how == "changed" and raw:
        at = draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + draw(st.binary(min_size=1, max_size=3)) + raw[at + 1 :]
    elif how == "cut":
        raw = raw[: draw(st.integers(0, len(raw)))]
    elif how == "longer":
        raw = (
            draw(st.sampled_from([b" ", b"\n", b"", b"\xef\xbb\xbf"]))
            + raw
            + draw(st.sampled_from([b" ", b"\0", b"x"]))
        )
    if isinstance(message, str) and draw(st.integers(0, 3)):
        # With surrogates for what is no UTF-8: what a caller may be given by a framing that does not check.
        return raw.decode(errors="surrogateescape")
    return raw


calls = st.sampled_from([("interrupt", (0,)), ("interrupt", (37,)), ("begin_turn", (UTTERANCE,)), ("end_turn", ())])


@st.composite
def steps_of(draw: st.DrawFn, name: str) -> list[Step]:
    """A conversation up to a piece of audio, which is changed, and what follows, perhaps in another order."""
    known = conversation(name)
    begin = draw(st.sampled_from(audible_steps(name)))
    steps: list[Step] = [*known[:begin], draw(mutated(known[begin]))]
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.just(begin + 1) | st.sampled_from(audible_steps(name)) | st.integers(0, len(known) - 1))
        for step in known[at : at + draw(st.integers(1, 3))]:
            if not isinstance(step, tuple):
                steps += [draw(mutated(step))] * draw(st.sampled_from((1, 1, 1, 2)))
        if not draw(st.integers(0, 3)):
            steps.append(draw(calls))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_caller_without_its_reader_ends_in_the_same_state(name: str, data: st.DataObject) -> None:
    assert_same(lambda: Line(name).caller, data.draw(steps_of(name)))


@pytest.mark.parametrize("name", WIRES)
def test_a_whole_conversation_is_the_same_without_the_reader(name: str) -> None:
    assert_same(lambda: Line(name).caller, conversation(name))


def variants(raw: bytes) -> Iterator[bytes]:
    """A JSON object with each of its members changed to each odd value, there twice, missing, or beside another one."""
    pairs = members(raw)
    for at, (key, each) in enumerate(pairs or ()):
        before, after = (pairs or [])[:at], (pairs or [])[at + 1 :]
        yield joined([*before, *after])
        for odd in ODD_VALUES:
            yield joined([*before, (key, odd), *after])
            yield joined([*before, (key, odd), (key, each), *after])
            yield joined([*before, (key, each), *after, (key, odd)])
        for bad in BAD_UTF8:
            yield joined([*before, (key, '"BAD"'), *after]).replace(b"BAD", bad)
            yield joined([*before, (key, each), ('"BAD"', "1"), *after]).replace(b"BAD", bad)
            yield joined([*before, (key, each), ('"x"', '"BAD"'), *after]).replace(b"BAD", bad)
        for more in ODD_MEMBERS:
            name, _, odd = more.partition(":")
            yield joined([*before, (key, each), (name, odd), *after])
        for inner in variants(each.encode()):
            yield joined([*before, (key, "INNER"), *after]).replace(b"INNER", inner)


@pytest.mark.parametrize("name", WIRES)
def test_every_odd_member_is_read_the_same_without_the_reader(name: str) -> None:
    known = conversation(name)
    # Neither the first piece of a reply nor the second: what is held of a reply is held by then.
    at = audible_steps(name)[2]
    message = known[at]
    assert not isinstance(message, tuple)
    raw = message.encode() if isinstance(message, str) else message
    line, newline, rest = raw.partition(b"\n")
    steps: list[Step] = [*known[:at]]
    for changed in variants(line):
        whole = changed + newline + rest
        steps += [whole, message]
        if isinstance(message, str):
            steps += [whole.decode(errors="surrogateescape"), message]
    assert_same(lambda: Line(name).caller, steps)
