"""Opus there and back: what a tone becomes, and how much later it comes out."""

import numpy as np
import pytest

from loadtest.engine.webrtc.opus import RATE_HZ, OpusDecoder, OpusEncoder

FRAME = RATE_HZ // 50
LOOK_AHEAD_SAMPLES = 312  # of libopus at 48 kHz in the mode for speech: RFC 6716, 2.5 ms of overlap and 4 ms of delay


@pytest.mark.slow
def test_a_click_comes_out_by_the_look_ahead_later() -> None:
    rng = np.random.default_rng(1)
    begin = 20 * FRAME
    sound = np.zeros(40 * FRAME)
    sound[begin : begin + 5 * FRAME] = 8000 * rng.standard_normal(5 * FRAME).clip(-3, 3)
    encoder, decoder = OpusEncoder(), OpusDecoder()
    packets = [
        packet
        for at in range(0, len(sound), FRAME)
        for packet in encoder.encode(sound[at : at + FRAME].astype("<i2").tobytes())
    ]
    assert [packet.pts for packet in packets] == [n * FRAME for n in range(40)], "one packet for each frame, at once"
    heard = np.frombuffer(b"".join(decoder.decode(bytes(packet)) for packet in packets), "<i2").astype(float)
    assert len(heard) == len(sound)
    shifts = range(-2 * FRAME, 2 * FRAME)
    best = max(shifts, key=lambda shift: float(np.dot(np.roll(sound, shift), heard)))
    assert best == pytest.approx(LOOK_AHEAD_SAMPLES, abs=24)


def test_invalid_opus_packet_has_no_samples() -> None:
    decoder = OpusDecoder()
    assert decoder.decode(b"\xff\xff\xff") == b""
    (packet,) = OpusEncoder().encode(bytes(2 * FRAME))
    assert decoder.decode(bytes(packet)) == bytes(2 * FRAME), "and the stream goes on"
