"""Warnings about models in use that will soon be retired."""

from datetime import date, timedelta

from gateway.catalogue.catalogue import Catalogue
from gateway.clock import Clock
from gateway.routing.provider_health import Health
from gateway.runtime.state_changes import StateChange, StateLog

REMEDY = "move its callers to another model: GET /v1/models tells what replaces it"


class ModelWatch:
    """Watches the end of models. `scan` runs only in the leading worker, which knows what all workers served."""

    def __init__(self, states: StateLog, clock: Clock, days: int) -> None:
        self._states = states
        self._clock = clock
        self._days = days

    def scan(self, health: Health, catalogue: Catalogue) -> None:
        """Fire a state change once for each mapping in use that ends soon."""
        today = self._clock.now().date()
        used = {key for key in health.windows if "#" not in key}
        for model in catalogue.models.values():
            for mapping in model.mappings:
                end = _read_day(mapping.deactivated)
                if mapping.key in used and end is not None and today <= end <= today + timedelta(days=self._days):
                    self._states.fire(_change_of(mapping.key, end, (end - today).days))


def _change_of(key: str, end: date, days: int) -> StateChange:
    facts: dict[str, object] = {"model": key, "ends": end.isoformat(), "days": days}
    message = f"{key} ends on {end}, in {days} days"
    return StateChange("model.retiring", f"model {key}", message, remedy=REMEDY, facts=facts)


def _read_day(text: str) -> date | None:
    try:
        if text:
            return date.fromisoformat(text[:10])
        return None
    except ValueError:
        return None
