"""Gateways and fakes that the tests of a module share. Each test has a separate organization.

Starting a gateway costs as much as fifty requests. Calls of the API only affect the test's organization, so the tests
of a module share a gateway. Tests that affect others (settings, a drain, a killed process) need a separate gateway.
After each test a check reports whether the test changed the gateway.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

from fakes.server import FakeServer
from support import prepared
from support.gateways import LocalGateway, local_gateway
from support.postgres import Databases

from gateway.configuration import settings as settings_module
from gateway.configuration.settings import Settings
from gateway.metering.usage_table import UsageRecord, find, raw_id
from gateway.routing.provider_health import Health
from gateway.worker.services import Services

CREDITS_NUSD = 100_000_000_000
Environment = Mapping[str, str] | Callable[[Path], Mapping[str, str]]
Fake = TypeVar("Fake", bound=AbstractContextManager[Any])


class Tenant(LocalGateway):
    """A shared gateway with a new organization. Tests use it like a LocalGateway; its first key belongs to the
    organization."""

    def __init__(self, gateway: LocalGateway, name: str, credits_nusd: int = CREDITS_NUSD) -> None:
        self.app, self.services, self.address = gateway.app, gateway.services, gateway.address
        self.organization_id, self.project_id, self.key = gateway.settle(name, credits_nusd)

    def close(self) -> None:
        raise AssertionError("This gateway is shared: a test that ends it needs one of its own.")


class SharedGateway:
    """Creates tenants of a gateway, one test after the other."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        self._numbers = itertools.count(1)
        self._parts = _parts_of(gateway.services)
        self._last = ""

    def tenant(self, test: str) -> Tenant:
        """Return a new organization for the test of that name. The health of providers is reset."""
        self.check()
        self._last = test
        services = self.gateway.services
        # Tables are bound to the store that was opened last, which may belong to another test.
        services.store.database.bind()
        forget_health(services.routing.health)
        return Tenant(self.gateway, f"tenant-{next(self._numbers)}")

    def check(self) -> None:
        """Raise AssertionError when a test changed the gateway."""
        now = _parts_of(self.gateway.services)
        changed = sorted(name for name in now if now[name] is not self._parts.get(name))
        self._parts = now  # reported once
        assert not changed, f"{self._last} changed {', '.join(changed)} of a shared gateway: it needs one of its own"


class ModuleShare:
    """The shared objects of a module's tests. `make_folder(name)` creates a folder."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        self._make_folder = make_folder
        self._stack = ExitStack()
        self._gateways: dict[Any, SharedGateway] = {}
        self._fakes: dict[Any, Any] = {}
        self._databases: list[str] = []

    def gateway(self, key: Any, environment: Environment) -> SharedGateway:
        if key not in self._gateways:
            folder = self._make_folder("shared")
            settings = environment(folder) if callable(environment) else environment
            running = self._stack.enter_context(local_gateway(lambda **more: load(folder, **more), **settings))
            self._gateways[key] = SharedGateway(running)
        return self._gateways[key]

    def fake(self, kind: Callable[..., Fake], *arguments: Any, name: str = "") -> Fake:
        key = kind, arguments, name
        found: Any = self._fakes.get(key)
        if found is None:
            found = self._fakes[key] = self._stack.enter_context(kind(*arguments))
        elif not isinstance(found, FakeServer):
            found.reset()
        else:
            # The initial state, except for the server: gateways know its address.
            server = found._server
            vars(found).clear()
            found.__init__(*arguments)
            found._server = server
        return found

    def database(self, databases: Databases) -> str:
        if not self._databases:
            self._databases.append(databases.take())
            # Databases are returned after the gateways, which were created later, have ended.
            self._stack.callback(databases.give, self._databases[0])
        return self._databases[0]

    def close(self) -> None:
        with self._stack:
            for gateway in self._gateways.values():
                gateway.check()


class Share:
    """Access to the shared objects of a module for one test."""

    def __init__(self, shared: ModuleShare, test: str) -> None:
        self._shared, self._test = shared, test

    def gateway(self, environment: Environment, name: str = "") -> Tenant:
        """Return the module's gateway with these variables and a new organization with credits.

        `environment` may be a function that writes a catalogue to a folder and is called once; `name` distinguishes
        gateways of several such functions.
        """
        key = (name,) if callable(environment) else (name, *sorted(environment.items()))
        return self._shared.gateway(key, environment).tenant(self._test)

    def fake(self, kind: Callable[..., Fake], *arguments: Any, name: str = "") -> Fake:
        """Return the module's fake of that class, without calls and script; `name` distinguishes several of a class."""
        return self._shared.fake(kind, *arguments, name=name)

    def database(self, databases: Databases) -> str:
        """Return the URL of the module's database, from `databases`."""
        return self._shared.database(databases)


def usage_of(gateway: LocalGateway) -> list[UsageRecord]:
    """Return the usage rows of the gateway's first organization, oldest first."""
    database = gateway.services.store.database
    own = raw_id(gateway.organization_id)
    gateway.services.store.journal.flush(60)
    sql = "SELECT request FROM usage WHERE organization = ? GROUP BY request ORDER BY request"
    requests = database.read(lambda: database.execute(sql, (own,)).fetchall())
    return [row for (request,) in requests for row in find(database, bytes(request).hex())]


def load(folder: Path, **environment: str) -> Settings:
    return settings_module.load(prepared.ENVIRONMENT | {"GATEWAY_DATA_DIR": str(folder / "data")} | environment)


def forget_health(health: Health) -> None:
    """Reset outcomes and cooldowns of all providers, as after a start."""
    health.windows.clear()
    health._changed.clear()
    health._watched.clear()
    health.cooldowns.__init__(health._clock, health._watched)
    health.refusals.__init__(health._clock, health._watched)


def _parts_of(services: Services) -> dict[str, Any]:
    """Return all services by name, including nested groups."""
    parts = {}
    for field in dataclasses.fields(services):
        part = parts[field.name] = getattr(services, field.name)
        if dataclasses.is_dataclass(part):
            parts |= {f"{field.name}.{inner.name}": getattr(part, inner.name) for inner in dataclasses.fields(part)}
    return parts
