"""What a comparison of wires can be asked for, and how it refuses what it cannot."""

from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from tests.benchmarks.bench.density.options import DensityOptions, checked
from tests.benchmarks.bench.density.wires import WIRES

PLAIN: dict[str, Any] = {
    "wires": None,
    "callers": None,
    "rounds": None,
    "window": None,
    "short": False,
    "json_file": None,
    "markdown": False,
}


def asked(**changes: Any) -> DensityOptions:
    return checked(**{**PLAIN, **changes})


def test_all_wires_are_compared_by_default() -> None:
    assert asked().wires == tuple(wire.name for wire in WIRES)
    assert asked(wires="twilio, pipecat,twilio").wires == ("twilio", "pipecat")


def test_short_is_shorter_unless_a_length_is_given() -> None:
    usual, short = asked(), asked(short=True)
    assert (short.rounds, short.sizes.callers) < (usual.rounds, usual.sizes.callers)
    assert short.sizes.window_s < usual.sizes.window_s
    assert asked(short=True, window="400ms").sizes.window_s == 0.4


def test_every_fault_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        asked(wires="fax", callers=0, rounds=0, window="1ms", json_file=tmp_path)
    lines = str(refused.value).splitlines()
    assert [line.split()[0] for line in lines] == ["--callers", "--rounds", "--wires", "--window", "--json"]
    assert "fax is unknown" in lines[2]
    with pytest.raises(UsageError, match="it names nothing"):
        asked(wires=",")


@pytest.mark.parametrize("wire", [wire.name for wire in WIRES])
def test_every_wire_can_be_asked_for_alone(wire: str) -> None:
    assert asked(wires=wire).wires == (wire,)
