"""Cooldowns of providers and their ends are reported once each, with reason and remedy."""

import pytest

from gateway.catalogue.entries import Mapping
from gateway.errors import ConnectFailed, UpstreamRateLimited
from gateway.providers.protocol import Credential
from gateway.routing.provider_health import Health
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.telemetry.provider_changes import ProviderChanges


@pytest.fixture
def told() -> list[StateChange]:
    return []


@pytest.fixture
def changes(clock, told: list[StateChange]) -> ProviderChanges:
    states = StateLog()
    states.subscribe(told.append)
    return ProviderChanges(states, clock)


def events(told: list[StateChange]) -> list[str]:
    return [one.event for one in told]


def test_a_refused_credential_names_provider_key_and_remedy(changes: ProviderChanges, told: list[StateChange]) -> None:
    changes("openai#a1b2", "refused", 30.0, "")
    (change,) = told
    assert change.event == "credential.refused" and "funding" in change.remedy
    assert change.facts == {"provider": "openai", "credential": "a1b2", "reason": "refused", "seconds": 30}


def test_a_rest_of_one_organization_names_it(changes: ProviderChanges, told: list[StateChange]) -> None:
    changes("openai/gpt-5#a1b2@org_1", "refused", 30.0, "org_1")
    assert told[0].facts["organization"] == "org_1" and told[0].facts["model"] == "openai/gpt-5"


def test_a_provider_that_goes_on_failing_is_reported_once(
    changes: ProviderChanges, told: list[StateChange], clock
) -> None:
    for _ in range(5):
        changes("openai", "unreachable", 1.0, "")
        clock.advance(2)
    changes("openai", "", 0.0, "")
    assert events(told) == ["provider.resting", "provider.back"]


def test_one_that_comes_and_goes_is_reported_once_a_minute(changes, told: list[StateChange], clock) -> None:
    for _ in range(10):
        changes("openai/gpt-5#k", "limited", 1.0, "")
        changes("openai/gpt-5#k", "", 0.0, "")
        clock.advance(1)
    clock.advance(120)
    changes("openai/gpt-5#k", "limited", 1.0, "")
    assert events(told) == ["provider.resting", "provider.back", "provider.resting"]


def test_health_shows_findings_of_this_worker_and_not_of_others(clock, changes, told: list[StateChange]) -> None:
    here, there = Health(clock, changes), Health(clock)
    there.cooldowns.trip("openai", "unreachable")
    here.merge(there.export())
    assert told == [] and here.cooldowns.active() == {"openai": "unreachable"}
    here.cooldowns.trip("google", "unreachable")
    here.cooldowns.clear("google")
    assert events(told) == ["provider.resting", "provider.back"]


def test_incidents_of_an_organizations_own_key_name_that_organization(clock, changes, told: list[StateChange]) -> None:
    health, one = Health(clock, changes), Mapping("custom:house", "m", "m")
    own = Credential("secret", "byok", "pkey_1", elsewhere=True)
    for error in (ConnectFailed("refused"), UpstreamRateLimited("slow down", upstream_status=429)):
        health.sample(one, own, error=error, organization="org_1")
    health.sample(one, Credential("secret", ident="a1b2"), error=ConnectFailed("refused"), organization="org_1")
    resting = [change for change in told if change.event == "provider.resting"]
    assert [change.facts.get("organization") for change in resting] == ["org_1", "org_1", None]
