"""Gateways and fakes that the tests of a module share, each test with an organization of its own in them.

Starting a gateway costs as much as fifty requests. What a test does through the API concerns its own organization
alone, so that a module's tests share one; what would reach the others (settings, a drain, a killed process) wants a
gateway of the test's own. Between the tests it is looked whether one changed the gateway, and which one is told.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from fakes.server import FakeServer
from support.gateways import LocalGateway, local_gateway
from support.postgres import Databases

from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.configuration import settings as settings_module
from gateway.configuration.settings import Settings
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.metering.usage_table import UsageRecord, find, raw_id
from gateway.oauth.models import MODELS as OAUTH_MODELS
from gateway.routing.provider_health import Health
from gateway.worker.services import Services

CREDITS_NUSD = 100_000_000_000
Environment = Mapping[str, str] | Callable[[Path], Mapping[str, str]]
Fake = TypeVar("Fake", bound=FakeServer)


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
        services.store.database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS, *OAUTH_MODELS])
        forget_health(services.routing.health)
        return Tenant(self.gateway, f"tenant-{next(self._numbers)}")

    def check(self) -> None:
        """AssertionError when a test left the gateway other than it was."""
        now = _parts_of(self.gateway.services)
        changed = sorted(name for name in now if now[name] is not self._parts.get(name))
        self._parts = now  # told once
        assert not changed, f"{self._last} changed {', '.join(changed)} of a shared gateway: it needs one of its own"


class ModuleShare:
    """What the tests of one module share, from its first test to its last. `make_folder(name)` is a new folder."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        self._make_folder = make_folder
        self._stack = ExitStack()
        self._gateways: dict[Any, SharedGateway] = {}
        self._fakes: dict[Any, FakeServer] = {}
        self._databases: list[str] = []

    def gateway(self, key: Any, environment: Environment) -> SharedGateway:
        if key not in self._gateways:
            folder = self._make_folder("shared")
            given = environment(folder) if callable(environment) else environment
            running = self._stack.enter_context(local_gateway(lambda **more: load(folder, **more), **given))
            self._gateways[key] = SharedGateway(running)
        return self._gateways[key]

    def fake(self, kind: Callable[..., Fake], *arguments: Any, name: str = "") -> Fake:
        key = kind, arguments, name
        found: Any = self._fakes.get(key)
        if found is None:
            found = self._fakes[key] = self._stack.enter_context(kind(*arguments))
        else:
            # As it was made, but for the server, whose address the gateways know.
            server = found._server
            vars(found).clear()
            found.__init__(*arguments)
            found._server = server
        return found

    def database(self, databases: Databases) -> str:
        if not self._databases:
            self._databases.append(databases.take())
            # Given back after the gateways have ended, which come later.
            self._stack.callback(databases.give, self._databases[0])
        return self._databases[0]

    def close(self) -> None:
        with self._stack:
            for one in self._gateways.values():
                one.check()


class Share:
    """The shared things of its module as one test gets them."""

    def __init__(self, shared: ModuleShare, test: str) -> None:
        self._shared, self._test = shared, test

    def gateway(self, environment: Environment, name: str = "") -> Tenant:
        """The module's gateway with these variables, as a fresh organization with credits sees it.

        `environment` may be a function of a folder, called once, that writes a catalogue there; gateways of several
        such functions are told apart by `name`.
        """
        key = (name,) if callable(environment) else (name, *sorted(environment.items()))
        return self._shared.gateway(key, environment).tenant(self._test)

    def fake(self, kind: Callable[..., Fake], *arguments: Any, name: str = "") -> Fake:
        """The module's fake of that class, with no calls and no script yet; more than one of it by `name`."""
        return self._shared.fake(kind, *arguments, name=name)

    def database(self, databases: Databases) -> str:
        """The URL of the module's database, of those that `databases` hands out."""
        return self._shared.database(databases)


def usage_of(gateway: LocalGateway) -> list[UsageRecord]:
    """The usage rows of the gateway's first organization alone, oldest first."""
    database, own = gateway.services.store.database, raw_id(gateway.organization_id)
    gateway.services.store.journal.flush(5)
    sql = "SELECT request FROM usage WHERE organization = ? GROUP BY request ORDER BY request"
    requests = database.read(lambda: database.execute(sql, (own,)).fetchall())
    return [row for (request,) in requests for row in find(database, bytes(request).hex())]


def load(folder: Path, **environment: str) -> Settings:
    return settings_module.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)


def forget_health(health: Health) -> None:
    """No outcome and no cooldown of any provider is known any more, as after a start."""
    health.windows.clear()
    health._changed.clear()
    health._watched.clear()
    health.cooldowns.__init__(health._clock, health._watched)
    health.refusals.__init__(health._clock, health._watched)


def _parts_of(services: Services) -> dict[str, Any]:
    """Everything in the services by name, groups of them included."""
    parts = {}
    for field in dataclasses.fields(services):
        part = parts[field.name] = getattr(services, field.name)
        if dataclasses.is_dataclass(part):
            parts |= {f"{field.name}.{inner.name}": getattr(part, inner.name) for inner in dataclasses.fields(part)}
    return parts
