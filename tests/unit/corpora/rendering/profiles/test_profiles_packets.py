"""Tests of lost and late packets: their rates and bursts against theory."""

import itertools

import numpy as np
import pytest

from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.packets import late_packets, lost_packets


@pytest.mark.parametrize(
    "loss",
    [PacketLoss(0.05), PacketLoss(0.1, 4.0), PacketLoss(0.2, 8.0, 0.6), PacketLoss(0.01, 2.0)],
    ids=lambda loss: loss.label,
)
def test_loss_has_the_requested_rate_and_bursts(loss: PacketLoss) -> None:
    lost = lost_packets(loss, 200_000, 7)
    assert np.mean(lost) == pytest.approx(loss.ratio, rel=0.1)
    if loss.burst_packets is not None and loss.bad_loss == 1.0:
        runs = [len(list(run)) for is_lost, run in itertools.groupby(lost.tolist()) if is_lost]
        assert np.mean(runs) == pytest.approx(loss.burst_packets, rel=0.1)
    assert np.array_equal(lost, lost_packets(loss, 200_000, 7))
    assert np.array_equal(lost[:50], lost_packets(loss, 50, 7))
    assert not np.array_equal(lost, lost_packets(loss, 200_000, 8))


@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.2])
def test_loss_without_bursts_is_independent_per_packet(ratio: float) -> None:
    packets = 400_000
    lost = lost_packets(PacketLoss(ratio), packets, 11)
    # Both are counts of independent events: single losses, and two losses in a row.
    for found, expected in ((np.sum(lost), ratio * packets), (np.sum(lost[1:] & lost[:-1]), ratio**2 * packets)):
        assert abs(found - expected) < 4 * np.sqrt(expected * (1 + 2 * ratio))
    runs = np.array([len(list(run)) for is_lost, run in itertools.groupby(lost.tolist()) if is_lost])
    lengths = np.arange(1, 4)
    expected_counts = len(runs) * (1 - ratio) * ratio ** (lengths - 1.0)
    counts = np.array([np.sum(runs == length) for length in lengths])
    assert np.all(np.abs(counts - expected_counts) < 4 * np.sqrt(expected_counts) + 1)


@pytest.mark.parametrize(
    "loss", [PacketLoss(0.05, 3.0), PacketLoss(0.1, 1.0), PacketLoss(0.2, 8.0, 0.6)], ids=lambda loss: loss.label
)
def test_losses_in_bursts_follow_the_two_state_markov_chain(loss: PacketLoss) -> None:
    """Compare how often two packets some steps apart are both lost with powers of the transition matrix."""
    packets = 400_000
    lost = lost_packets(loss, packets, 12).astype(float)
    bad = loss.ratio / loss.bad_loss
    leave = 1 / (loss.burst_packets or 1)
    transitions = np.array([[1 - bad * leave / (1 - bad), bad * leave / (1 - bad)], [leave, 1 - leave]])
    for step in (1, 2, 3, 5, 10):
        again = bad * np.linalg.matrix_power(transitions, step)[1, 1] * loss.bad_loss**2
        assert np.mean(lost[step:] * lost[:-step]) == pytest.approx(again, rel=0.08, abs=2e-4)


def test_a_deeper_buffer_has_fewer_late_packets() -> None:
    shares = [np.mean(late_packets(Jitter(20.0, buffer), 100_000, 1)) for buffer in (20.0, 40.0, 80.0)]
    assert shares == pytest.approx([np.exp(-1), np.exp(-2), np.exp(-4)], rel=0.1)
