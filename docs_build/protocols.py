"""Generates the page of protocols: what a caller can observe, and what proves it."""

from typing import Final

from docs_build.markdown import cell, code, page, table
from loadtest.protocols.address import SCHEMES
from loadtest.protocols.built_in import BUILT_IN, METRIC_OF, Description
from telemetry.model.metrics import DEFINITIONS

INTRODUCTION: Final = """
The protocols that `--protocol` takes. *Shows* lists the stages of a turn that a caller can observe; the metrics of any
other stage are *not observable* with that protocol: they are withheld with the reason, never 0. Settings of a protocol,
given with `--protocol-option`, may switch stages off. Other packages [add protocols](../extending/protocol.md); those
that are installed are listed by `voiceprobe run --help`.

*Proved against* names what others wrote and the tests check each protocol with: whole calls to a running peer, unless
parentheses say that only a part of the package was used. "Scripted servers only" means servers of this project, after
what is published of the protocol.
"""
GUESS: Final = """
Where neither `--protocol` nor the table `[protocol]` of a scenario file names a protocol, it follows from the address.
The pattern that fits with the most characters decides; `*` is any text, and port and query do not count. Patterns of
other packages are considered only if none of these fits. An address that fits no pattern at all is taken for
`openai-realtime`.
"""
STAGES: Final = "Each stage has a metric that cannot be without it:"


def protocols_page() -> str:
    """Return the page with every protocol of this package, and how an address is assigned to one."""
    described = [row for _, row in sorted(BUILT_IN.items())]
    patterns = [(code(hint), code(each.name)) for each in described for hint in each.url_hints]
    stages = [(cell(stage), code(metric), cell(DEFINITIONS[metric].definition)) for stage, metric in METRIC_OF.items()]
    return page(
        "Protocols",
        INTRODUCTION,
        table(("Protocol", "Meaning", "Address", "Shows", "Proved against"), [_row(each) for each in described]),
        "## Stages",
        STAGES,
        table(("Stage", "Metric", "Definition"), stages),
        "## The protocol of an address",
        GUESS,
        table(("Pattern", "Protocol"), patterns),
    )


def _row(described: Description) -> tuple[str, ...]:
    schemes = ", ".join(code(f"{scheme}://") for scheme in SCHEMES[described.transport])
    return code(described.name), cell(described.summary), schemes, cell(described.shown), cell(described.proof)
