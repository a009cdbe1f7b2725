"""The report of the installation's health."""

import msgspec
import pytest

from gateway.surfaces import health


@pytest.mark.parametrize("check", [health.FINE, health.NOT_CONFIGURED, health.REDIS_AWAY, health.DATABASE_AWAY])
def test_a_report_has_all_members_of_its_description(check: health.HealthCheck) -> None:
    answer = health.write_report("1.0", check, check)
    assert isinstance(answer.body, bytes)
    report = msgspec.json.decode(answer.body, type=health.HealthReport)
    assert report["health"]["database"] == report["health"]["redis"] == check
