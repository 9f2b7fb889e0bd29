"""The run of what a service reports on its own."""

from datetime import date

import pytest

from telemetry.model.services import ServiceDay, service_day, service_run_id

LAST_MOMENT_UNIX_NS = 1_794_355_199_999_999_999  # 2026-11-10 23:59:59.999999999 UTC


def test_a_run_is_a_service_and_a_day_in_utc() -> None:
    assert service_run_id("bot", LAST_MOMENT_UNIX_NS) == "service:bot:2026-11-10"
    assert service_run_id("bot", LAST_MOMENT_UNIX_NS + 1) == "service:bot:2026-11-11"


@pytest.mark.parametrize("service", ["bot", "a:b", "two\nlines", "service:bot:2026-11-10"])
def test_the_service_and_the_day_come_back(service: str) -> None:
    assert service_day(service_run_id(service, LAST_MOMENT_UNIX_NS)) == ServiceDay(service, date(2026, 11, 10))


def test_a_service_without_a_name_has_the_name_that_opentelemetry_gives_it() -> None:
    assert service_run_id("", LAST_MOMENT_UNIX_NS) == "service:unknown_service:2026-11-10"


@pytest.mark.parametrize("run_id", ["", "night", "service:bot", "service::2026-11-10", "service:bot:2026-13-10"])
def test_other_run_ids_are_of_no_service(run_id: str) -> None:
    assert service_day(run_id) is None
