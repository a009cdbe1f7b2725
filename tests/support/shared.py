"""One gateway for all tests of a module, each test with an organization of its own in it.

Starting a gateway costs as much as fifty requests. What a test does through the API concerns its own organization
alone, so that a module's tests share one; what would reach the others (settings, a drain, a killed process) wants a
gateway of the test's own. Between the tests it is looked whether one changed the gateway, and which one is told.
"""

import dataclasses
import itertools
from typing import Any

from support.gateways import LocalGateway

from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.routing.health import Health
from gateway.services import Services

CREDITS_NUSD = 100_000_000_000


class Tenant(LocalGateway):
    """A gateway as one fresh organization sees it; to a test it is a LocalGateway whose first key is this one's."""

    def __init__(self, gateway: LocalGateway, name: str, credits_nusd: int = CREDITS_NUSD) -> None:
        self.app, self.services, self.address = gateway.app, gateway.services, gateway.address
        self.organization_id, self.project_id, self.key = gateway.settle(name, credits_nusd)

    def close(self) -> None:
        raise AssertionError("This gateway is shared: a test that ends it needs one of its own.")


class SharedGateway:
    """Hands out tenants of one gateway, one test after the other."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        self._numbers = itertools.count(1)
        self._parts = _parts_of(gateway.services)
        self._last = ""

    def tenant(self, test: str) -> Tenant:
        """A fresh organization for the test of that name, in a gateway that knows nothing of its providers' past."""
        self.check()
        self._last = test
        services = self.gateway.services
        # Tables belong to the store that was opened last, which may be another test's.
        services.store.database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS])
        forget_health(services.routing.health)
        return Tenant(self.gateway, f"tenant-{next(self._numbers)}")

    def check(self) -> None:
        """AssertionError when a test left the gateway other than it was."""
        now = _parts_of(self.gateway.services)
        changed = sorted(name for name in now if now[name] is not self._parts.get(name))
        self._parts = now  # told once
        assert not changed, f"{self._last} changed {', '.join(changed)} of a shared gateway: it needs own_gateway"


def _parts_of(services: Services) -> dict[str, Any]:
    """Everything in the services by name, groups of them included."""
    parts = {}
    for field in dataclasses.fields(services):
        part = parts[field.name] = getattr(services, field.name)
        if dataclasses.is_dataclass(part):
            parts |= {f"{field.name}.{inner.name}": getattr(part, inner.name) for inner in dataclasses.fields(part)}
    return parts


def forget_health(health: Health) -> None:
    """No outcome and no cooldown of any provider is known any more, as after a start."""
    health.windows.clear()
    health._changed.clear()
    health._watched.clear()
    health.cooldowns.__init__(health._clock, health._watched)
    health.refusals.__init__(health._clock, health._watched)
