"""A gateway of which a person takes the first steps: without provider keys, with fakes of two providers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.anthropic import FakeAnthropic
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.accounts.members import list_members
from gateway.configuration.settings import Settings


@dataclass
class FirstSteps:
    """The gateway, its providers, and the session of its owner."""

    gateway: LocalGateway
    openai: FakeOpenAI
    anthropic: FakeAnthropic

    @property
    def session(self) -> str:
        owner = list_members(self.gateway.services.store.database, self.gateway.organization_id)[0]
        return self.gateway.services.management.sessions.open(owner.user_id).token


@contextmanager
def first_steps(settings: Callable[..., Settings], folder: Path) -> Iterator[FirstSteps]:
    """Start a gateway with a catalogue that leads to the fakes."""
    providers = folder / "providers"
    providers.mkdir(parents=True)
    with FakeOpenAI() as openai, FakeAnthropic() as anthropic:
        (providers / "openai.toml").write_text(f'address = "{openai.url}"\n')
        (providers / "anthropic.toml").write_text(f'address = "{anthropic.url}"\n')
        with local_gateway(settings, GATEWAY_CATALOGUE_PATH=str(folder)) as gateway:
            yield FirstSteps(gateway, openai, anthropic)
