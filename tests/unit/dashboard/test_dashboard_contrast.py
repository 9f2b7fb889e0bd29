"""The colors against WCAG 2.2: text at least 4.5 to its ground, graphics at least 3, in light and dark."""

import re

import pytest

from dashboard.palette import DARK, LIGHT, STAGE_NAMES, Palette
from dashboard.stylesheet import stylesheet

GROUNDS = {"light": "#ffffff", "dark": "#12151b"}


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def variables() -> dict[str, dict[str, str]]:
    """Each color of the style sheet by theme."""
    found = re.findall(r"--vp-([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", stylesheet())
    return {name: {"light": light, "dark": dark} for name, light, dark in found}


def test_the_formula_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the well-known gray that just fails


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_every_ground_it_is_on(theme: str) -> None:
    colors = {name: by_theme[theme] for name, by_theme in variables().items()}
    grounds = [GROUNDS[theme], colors["panel"]]
    pairs = [(name, ground) for name in ("ink", "soft", "latency", "met", "missed", "unknown") for ground in grounds]
    pairs += [(state, colors[f"{state}-soft"]) for state in ("met", "missed", "unknown")]
    pairs += [("ink", colors["unknown-soft"])]
    faint = {(name, ground): contrast(colors[name], ground) for name, ground in pairs}
    assert {pair: round(found, 2) for pair, found in faint.items() if found < 4.5} == {}


@pytest.mark.parametrize(("theme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_lines_and_bars_stand_out_from_the_page(theme: str, palette: Palette) -> None:
    drawn = {name: str(getattr(palette, name)) for name in ("p50", "p95", "p99", "speech", "playing")}
    drawn |= {f"series {place}": color for place, color in enumerate(palette.series)}
    drawn |= dict(zip(STAGE_NAMES, palette.stages, strict=True))
    cohorts = {name: by_theme[theme] for name, by_theme in variables().items() if name.startswith("cohort")}
    faint = {name: round(contrast(color, GROUNDS[theme]), 2) for name, color in (drawn | cohorts).items()}
    assert {name: found for name, found in faint.items() if found < 3} == {}
    assert palette.paper == GROUNDS[theme]
