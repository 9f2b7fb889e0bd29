"""The colors of the charts, in light and dark: the same as in `style.css`, where the page's own parts have them."""

from dataclasses import dataclass
from typing import Final

STAGE_NAMES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colors. Percentiles are one hue in three strengths; a stage keeps its color everywhere."""

    ink: str
    paper: str
    soft: str
    line: str
    p50: str
    p95: str
    p99: str
    behind: str
    speech: str
    playing: str
    stages: tuple[str, ...]  # in the order of STAGE_NAMES
    series: tuple[str, ...]  # of lines and bars that have no meaning of their own, told apart by dashes, too


LIGHT: Final = Palette(
    ink="#1b1f27",
    paper="#ffffff",
    soft="#596273",
    line="#e3e6eb",
    p50="#8580ea",
    p95="#4f46e5",
    p99="#2a2390",
    behind="#cfd5df",
    speech="#3f4a5c",
    playing="#0f766e",
    stages=("#64718a", "#5b8fd6", "#a87a14", "#9a6fc4", "#8b95a6", "#c96060"),
    series=("#1d6fd1", "#b0359b", "#0f766e", "#b93815", "#6d5bd0", "#7a5c00", "#596273", "#2a2390"),
)
DARK: Final = Palette(
    ink="#e6e9ef",
    paper="#12151b",
    soft="#9aa4b5",
    line="#2a303b",
    p50="#6f6bd0",
    p95="#a5b4fc",
    p99="#e4e8ff",
    behind="#343c4a",
    speech="#b4bfd0",
    playing="#5eead4",
    stages=("#7b879b", "#6ea0e4", "#d9b04e", "#b48bdc", "#657189", "#b66a6a"),
    series=("#7ab8ff", "#f0a0e0", "#5eead4", "#fdba74", "#c4b5fd", "#facc15", "#9aa4b5", "#e4e8ff"),
)


def palette(theme: str | None) -> Palette:
    """The colors for a viewer's theme; light where the browser does not report one."""
    return DARK if theme == "dark" else LIGHT
