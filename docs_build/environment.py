"""Generates the page of environment variables."""

from typing import Final

from corpora.rendering.cache import CACHE_VARIABLE, DEFAULT_LIMIT_GB, HOME_VARIABLE, LIMIT_VARIABLE
from corpora.sources.synthesis.voices import TOKEN_VARIABLE as SAY_TOKEN_VARIABLE
from docs_build.markdown import cell, code, page, table
from loadtest.engine.tls import PASSPHRASE_VARIABLE
from loadtest.scenario.access import TARGET_VARIABLE, TOKEN_VARIABLE
from loadtest.swarm import priority
from loadtest.targets.assistant.config import LLM_TOKEN_VARIABLE
from telemetry.model.semconv import (
    SIDECAR_CA_VARIABLE,
    SIDECAR_CLIENT_CERT_VARIABLE,
    SIDECAR_CLIENT_KEY_VARIABLE,
    SIDECAR_TOKEN_VARIABLE,
)

INTRODUCTION: Final = """
Secrets are read from the environment and never from flags, because process lists show flags. They are never printed or
stored.
"""
# Name, reader, meaning.
VARIABLES: Final = (
    (TOKEN_VARIABLE, "callers, assistant", "bearer token that callers present and the reference assistant requires"),
    (TARGET_VARIABLE, "run, capacity", "address of the endpoint, instead of the argument, if it contains credentials"),
    (PASSPHRASE_VARIABLE, "callers", "passphrase of the key given with --client-key"),
    (SIDECAR_TOKEN_VARIABLE, "sidecar, senders of spans", "bearer token that the sidecar requires"),
    (
        SIDECAR_CA_VARIABLE,
        "senders of spans, report, dashboard",
        "PEM file of a private certificate authority that signed the sidecar's certificate; no other is trusted",
    ),
    (
        SIDECAR_CLIENT_CERT_VARIABLE,
        "senders of spans, report, dashboard",
        "PEM file of a client certificate, if the sidecar requires one",
    ),
    (SIDECAR_CLIENT_KEY_VARIABLE, "senders of spans, report, dashboard", "PEM file of its key"),
    (LLM_TOKEN_VARIABLE, "assistant", "bearer token for the endpoint given with --llm-url"),
    (SAY_TOKEN_VARIABLE, "corpus say", "bearer token for the endpoint given with --url"),
    (HOME_VARIABLE, "all", "folder for installed corpora and calibrations (default: the user's data folder)"),
    (
        CACHE_VARIABLE,
        "callers",
        f"folder for rendered speech (default: {HOME_VARIABLE}/cache, or the user's cache folder)",
    ),
    (LIMIT_VARIABLE, "callers", f"maximum size of that folder in gigabytes (default: {DEFAULT_LIMIT_GB:g})"),
    (
        priority.VARIABLE,
        "callers",
        f"{' or '.join(priority.CHOICES)} (default: {priority.CHOICES[0]}): the scheduling priority that the load "
        "generator requests from the system",
    ),
    ("VOICEPROBE_VENV", "./voiceprobe", "folder of the virtual environment (default: .venv in the checkout)"),
    (
        "VOICEPROBE_PYTHON",
        "./voiceprobe",
        "interpreter that creates the environment (default: the first on PATH)",
    ),
    ("VOICEPROBE_APT_WAIT", "./voiceprobe test", "seconds to wait for another apt-get to finish (default: 300)"),
    (
        "VOICEPROBE_PEERS",
        "./voiceprobe test",
        "folder of the environments of the servers that the tests run (default: `.venv/peers`)",
    ),
    ("VOICEPROBE_NO_UV", "./voiceprobe", "1: install with pip alone"),
)


def environment_page() -> str:
    """Return the page with every environment variable that a user may set."""
    rows = [(code(name), cell(reader), cell(meaning)) for name, reader, meaning in VARIABLES]
    return page(
        "Environment variables",
        INTRODUCTION,
        table(("Variable", "Read by", "Meaning"), rows),
        "A header for the endpoint takes its value from a variable of your choice: `--header X-Api-Key=API_KEY`. "
        "`OTEL_SDK_DISABLED=true` turns telemetry off, as in every OpenTelemetry SDK.",
    )
