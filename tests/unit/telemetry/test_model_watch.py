"""The end of a model in use is reported before it affects callers."""

from datetime import timedelta
from types import SimpleNamespace

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.telemetry.budget_watch import ModelWatch


def model(name: str, end: str, released: str = "2025-01-01") -> Model:
    return Model(name, family="acme", released=released, mappings=(Mapping("openai", name, name, deactivated=end),))


def test_models_in_use_that_end_soon_are_reported_once(clock) -> None:
    today = clock.now().date()
    soon, later, past = (str(today + timedelta(days=days)) for days in (10, 90, -1))
    models = [model("used-1", soon), model("unused", soon), model("far", later), model("gone", past)]
    catalogue = Catalogue([*models, model("used-2", "", "2026-01-01")], (), {})
    health = SimpleNamespace(windows={f"openai/{name}": None for name in ("used-1", "far", "gone")})
    changes: list[StateChange] = []
    states = StateLog()
    states.subscribe(changes.append)
    watch = ModelWatch(states, clock, 30)
    for _ in range(2):
        watch.scan(health, catalogue)
    (change,) = changes
    assert change.event == "model.retiring" and change.facts["days"] == 10 and change.facts["model"] == "openai/used-1"
    assert change.facts["successor"] == "used-2"
