"""Operations in Flask: a blueprint for each surface, and the routing of paths."""

from types import SimpleNamespace

import pytest
from flask import Flask
from werkzeug.routing import Rule

from gateway.clock import Clock
from gateway.engine.idempotency import StoredReply
from gateway.metering.counters import Counters
from gateway.surfaces import surface_table
from gateway.surfaces.blueprints import _replayed_headers, _request_content, mount
from gateway.surfaces.http import Inbound, Surface
from gateway.surfaces.http_responses import OPENAI
from gateway.telemetry.request_observers import RequestObservers


@pytest.fixture
def mounted(settings, tmp_path):
    """Return a function that mounts these surfaces in a new Flask application."""
    telemetry = SimpleNamespace(requests=RequestObservers(Counters(tmp_path), Clock()))
    services = SimpleNamespace(settings=settings(), telemetry=telemetry, clock=Clock())

    def make(surfaces):
        made = Flask("mounted", static_folder=None)
        mount(made, services, surfaces)
        return made

    return make


def test_every_operation_is_matched_by_its_own_address_and_method(mounted):
    adapter = mounted(surface_table.SURFACES).url_map.bind("localhost")
    for operation in surface_table.operations():
        path = operation.path.replace("<path:", "<").replace("<", "").replace(">", "")
        endpoint, _ = adapter.match(path, method=operation.method)
        assert endpoint.endswith(f".{operation.method} {operation.path.replace('.', '_')}")


def test_addresses_are_prepared_only_for_being_matched(mounted, monkeypatch):
    compiled = []
    monkeypatch.setattr(Rule, "_compile_builder", lambda rule, append_unknown=True: compiled.append(rule))
    mounted((Surface("new", OPENAI, tuple(surface_table.operations())),))
    assert compiled == []


def test_applications_of_the_same_surfaces_share_their_rules(mounted):
    first = mounted(surface_table.SURFACES)
    assert mounted(surface_table.SURFACES).url_map is first.url_map
    assert mounted(surface_table.SURFACES[:1]).url_map is not first.url_map


def test_two_surfaces_of_one_name_are_refused(mounted):
    with pytest.raises(ValueError, match="twice"):
        mounted((Surface("twice", OPENAI, ()), Surface("twice", OPENAI, ())))


@pytest.mark.parametrize(
    "header",
    [
        *("ai-language-model-id", "ai-language-model-streaming", "ai-language-model-specification-version"),
        *("x-llmgateway-models", "x-llmgateway-provider"),
    ],
)
def test_a_repeated_request_with_another_choice_in_its_headers_is_another_request(header: str) -> None:
    first, other = (_request_content(Inbound("POST", "/v1/x", {header: value})) for value in "ab")
    assert first != other
    retried = Inbound("POST", "/v1/x", {header: "a", "x-stainless-retry-count": "1"})
    assert _request_content(retried) == first


@pytest.mark.parametrize(
    "header",
    [
        *("X-Request-Id", "Request-Id", "X-LLMGateway-Cost", "X-LLMGateway-Overhead-Ms"),
        *("RateLimit", "RateLimit-Policy", "X-RateLimit-Limit-Requests", "anthropic-ratelimit-tokens-remaining"),
    ],
)
def test_a_replayed_answer_has_no_header_that_was_true_of_the_first_alone(header: str) -> None:
    replayed = dict(_replayed_headers(StoredReply(200, [(header, "first"), ("Content-Type", "text/plain")], b""), "id"))
    assert "first" not in replayed.values() and replayed["Content-Type"] == "text/plain"
    assert (replayed["x-request-id"], replayed["x-llmgateway-cost"]) == ("id", "0")
