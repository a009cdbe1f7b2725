from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.clock import Clock
from gateway.configuration.settings import RoutingSettings
from gateway.neutral.chat import Options, Requirements
from gateway.routing.decision import Plan
from gateway.routing.plan import Router
from gateway.routing.provider_health import Health
from gateway.routing.sticky import Sticky


@dataclass(frozen=True)
class Key:
    ident: str = "k1"
    source: str = "platform"
    base_url: str = ""
    elsewhere: bool = False


def make_mapping(provider: str, model: str = "m", price: int = 1_000_000_000, **more: Any) -> Mapping:
    """Return a mapping that costs `price` n$ per million tokens for input and output."""
    base = Mapping(provider, model, model, prices=(Prices(TokenRates(prompt=price, completion=price)),))
    return replace(base, **more)


def make_provider(ident: str, **more: Any) -> Provider:
    return replace(Provider(ident, ident, "openai"), **more)


@dataclass
class World:
    """A small catalogue with a router; `keys` says which provider has which credentials."""

    clock: Clock
    models: tuple[Model, ...]
    providers: tuple[Provider, ...]
    keys: dict[str, tuple[Key, ...]]
    rolls: list[float] = field(default_factory=list)
    auto_models: tuple[str, ...] = ("m",)
    exploration: float = 0.0
    denied: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalogue = Catalogue(self.models, self.providers, {"nick": "m"}, "1")
        self.health = Health(self.clock)
        settings = RoutingSettings(
            max_attempts=3,
            exploration_rate=self.exploration,
            sticky_ttl_s=3600,
            low_uptime_percent=90.0,
            decision_days=7,
        )
        self.sticky = Sticky(self.clock, settings.sticky_ttl_s)
        random = (lambda: self.rolls.pop(0)) if self.rolls else (lambda: 0.999)
        self.router = Router(
            lambda: self.catalogue, self.health, self.sticky, settings, self.auto_models, random, self.clock
        )

    def plan(
        self, asked: str = "m", needs: Requirements | None = None, options: Options | None = None, **more: Any
    ) -> Plan:
        return self.router.plan(
            asked,
            needs or Requirements(),
            options or Options(),
            lambda mapping, provider: self.denied.get(provider.id),
            lambda mapping: self.keys.get(mapping.provider, ()),
            **more,
        )

    def mapping(self, provider: str, model: str = "m") -> Mapping:
        return next(one for one in self.catalogue.find(model).mappings if one.provider == provider)

    def outcomes(
        self,
        provider: str,
        good: int,
        bad: int,
        error: Exception | None = None,
        model: str = "m",
        organization_id: str = "",
    ) -> None:
        """Record successes, then failures; `organization_id` is the organization of the requests."""
        for _ in range(good):
            self.health.sample(self.mapping(provider, model), Key(), organization=organization_id)
        for _ in range(bad):
            self.health.sample(self.mapping(provider, model), Key(), error=error, organization=organization_id)


@pytest.fixture
def mapping() -> Callable[..., Mapping]:
    return make_mapping


@pytest.fixture
def provider() -> Callable[..., Provider]:
    return make_provider


@pytest.fixture
def key() -> type[Key]:
    return Key


@pytest.fixture
def make_world(clock: Clock) -> Callable[..., World]:
    """Return a factory world(*mappings, providers={id: fields}, …) of a World with a frozen clock; every provider has
    a key unless keys= says otherwise.
    """
    clock.freeze()

    def make(*mappings: Mapping, models: dict[str, dict] | None = None, providers: dict | None = None, **more) -> World:
        idents = dict.fromkeys(one.model for one in mappings)
        rows = tuple(
            Model(ident, mappings=tuple(one for one in mappings if one.model == ident), **(models or {}).get(ident, {}))
            for ident in idents
        )
        names = dict.fromkeys(one.provider for one in mappings)
        made = tuple(make_provider(name, **(providers or {}).get(name, {})) for name in names)
        keys = more.pop("keys", {name: (Key(),) for name in names})
        return World(clock, rows, made, keys, **more)

    return make
