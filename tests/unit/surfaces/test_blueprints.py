"""Operations in Flask: a blueprint for each surface, and the routing of paths."""

from types import SimpleNamespace

import pytest
from flask import Flask
from werkzeug.routing import Rule

from gateway.clock import Clock
from gateway.metering.counters import Counters
from gateway.surfaces import surface_table
from gateway.surfaces.blueprints import mount
from gateway.surfaces.web.http import Surface
from gateway.surfaces.web.http_responses import OPENAI
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
