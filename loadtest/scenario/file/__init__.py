"""The scenario file: who calls, what they say and how much load there is, in TOML. A module for each section."""

from loadtest.scenario.file.loader import Scenario, load_scenario, parse_scenario

__all__ = ["Scenario", "load_scenario", "parse_scenario"]
