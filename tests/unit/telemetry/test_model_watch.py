"""The end of a model in use is reported before it affects callers."""

from datetime import timedelta
from types import SimpleNamespace

from gateway.runtime.state_changes import StateChange, StateLog
from gateway.telemetry.budget_watch import ModelWatch


def mapping(name: str, end: str) -> SimpleNamespace:
    return SimpleNamespace(key=f"openai/{name}", deactivated=end)


def test_models_in_use_that_end_soon_are_reported_once(clock) -> None:
    today = clock.now().date()
    soon, later, past = (str(today + timedelta(days=days)) for days in (10, 90, -1))
    mappings = [mapping("used", soon), mapping("unused", soon), mapping("far", later), mapping("gone", past)]
    catalogue = SimpleNamespace(models={"m": SimpleNamespace(mappings=mappings, deactivated="")})
    health = SimpleNamespace(windows={f"openai/{name}": None for name in ("used", "far", "gone")})
    changes: list[StateChange] = []
    states = StateLog()
    states.subscribe(changes.append)
    watch = ModelWatch(states, clock, 30)
    for _ in range(2):
        watch.scan(health, catalogue)
    (change,) = changes
    assert change.event == "model.retiring" and change.facts["days"] == 10 and change.facts["model"] == "openai/used"
