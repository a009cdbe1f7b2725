"""Provider keys, a custom provider, and the last hour of two providers, for the console's pages of a small company."""

import random

from support.gateways import LocalGateway

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.money import NANO
from gateway.routing.sliding_window import TICKS_PER_MINUTE, Counts

MINUTES = 60
KEYS = (
    ProviderKeyDraft("openai", "sk-demo-0123456789abcdefghij", "Production"),
    ProviderKeyDraft("nanogpt", "nano-demo-0123456789abcdef", "Spare"),
    ProviderKeyDraft("anthropic", "sk-ant-demo-0123456789abcdef", "Research", max_spend_nusd=200 * NANO),
)
MODELS = (
    {"id": "support-8b", "prices": {"prompt": "0.0000002", "completion": "0.0000008"}, "context_length": 32_768},
    {"id": "embed-small"},
)


def add_demo_providers(gateway: LocalGateway, actor: str) -> None:
    """Add provider keys, of which one was rejected, a custom provider, and outcomes of the last hour."""
    management = gateway.services.management
    organization = gateway.organization_id
    provider_keys = [management.provider_keys.add(organization, draft, actor=actor) for draft in KEYS]
    management.custom_providers.add(organization, "acme-llm", "https://llm.acme.example/v1", MODELS, actor=actor)
    stores = gateway.services.store.database, gateway.services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(mode="hybrid"), actor=actor)
    health = gateway.services.routing.health
    catalogue = gateway.services.routing.catalogue.current()
    health.cooldowns.trip(f"anthropic#{provider_keys[-1].id}", "refused", None, organization)
    dice = random.Random(11)
    _, tick = health.tick()
    now = tick // TICKS_PER_MINUTE
    for model, provider, wait_ms in (("gpt-4o-mini", "openai", 420), ("claude-sonnet-4-5", "anthropic", 760)):
        key = next(mapping.key for mapping in catalogue.models[model].mappings if mapping.provider == provider)
        for minute in range(MINUTES):
            slow = 2.4 if 20 < minute < 28 else 1.0
            calls = dice.randrange(4, 18)
            failed = dice.randrange(3) if slow > 1 else int(dice.random() < 0.05)
            counts = Counts(calls, failed, calls, round(calls * wait_ms * slow * dice.uniform(0.85, 1.2)), calls * 300)
            counts.token_ms = calls * 4_000
            health._window(key).absorb(now - minute, counts, tick)
