"""The generated pages of the documentation, by their path in `docs/`."""

from collections.abc import Callable, Mapping
from typing import Final

from docs_build.commands import commands_page
from docs_build.conversation import conversation_page
from docs_build.corpus import corpus_page
from docs_build.environment import environment_page
from docs_build.exit_codes import exit_codes_page
from docs_build.framework_spans import framework_spans_page
from docs_build.metrics import metrics_page
from docs_build.prometheus import prometheus_page
from docs_build.protocols import protocols_page
from docs_build.receivers import receivers_page
from docs_build.scenario import scenario_page, scenario_schema
from docs_build.sidecar_settings import sidecar_settings_page
from docs_build.spans import spans_page
from docs_build.summary_schema import summary_page

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/commands.md": commands_page,
    "reference/protocols.md": protocols_page,
    "reference/scenario-file.md": scenario_page,
    "reference/scenario-file.schema.json": scenario_schema,
    "reference/metrics.md": metrics_page,
    "reference/json-summary.md": summary_page,
    "reference/spans.md": spans_page,
    "reference/framework-spans.md": framework_spans_page,
    "reference/otlp-receivers.md": receivers_page,
    "reference/sidecar-settings.md": sidecar_settings_page,
    "reference/prometheus.md": prometheus_page,
    "reference/corpus-folder.md": corpus_page,
    "reference/environment.md": environment_page,
    "reference/exit-codes.md": exit_codes_page,
    "explanation/conversation.md": conversation_page,
}
