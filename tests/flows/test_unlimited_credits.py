"""A self-hosted gateway needs no credits: usage is counted, and limits of keys still hold."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from openai import APIStatusError, OpenAI
from support.gateways import LocalGateway, local_gateway, migrate_store

from gateway.admin.bootstrap import Administration
from gateway.billing.reconciliation import doctor
from gateway.configuration.settings import Settings
from gateway.limits.budgets import Limits
from gateway.operator.start import describe_key
from gateway.worker.wiring import build

DOLLAR = 10**9


@pytest.fixture
def gateway(settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    with local_gateway(settings, GATEWAY_BOOTSTRAP_CREDITS_USD="unlimited") as running:
        yield running


def send_chat(gateway: LocalGateway) -> None:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    client.chat.completions.create(
        model="sandbox/sandbox-echo", messages=[{"role": "user", "content": "Hello"}], max_tokens=20
    )


def test_an_unlimited_organization_is_served_counted_and_said_to_be_so(gateway: LocalGateway) -> None:
    services = gateway.services
    caller = services.accounts.authentication.caller(gateway.key)
    send_chat(gateway)
    services.billing.settlements.maintain()
    state = services.billing.ledger.balance(caller.organization_id)
    assert state.unlimited and state.spent_nusd > 0 and doctor(services.store.database) == []
    credits = httpx.get(f"{gateway.url}/credits", headers={"Authorization": f"Bearer {gateway.key}"}, timeout=60).json()
    assert credits["unlimited"] is True and float(credits["balance"]) > 9e8 and float(credits["totalUsed"]) > 0


def test_limits_of_keys_hold_without_credits(gateway: LocalGateway) -> None:
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", caller.key_id, Limits(total_nusd=1))
    with pytest.raises(APIStatusError) as refused:
        send_chat(gateway)
    assert refused.value.status_code == 402 and refused.value.code == "key_limit_reached"


def test_the_change_is_in_force_when_it_returns_both_ways(gateway: LocalGateway) -> None:
    send_chat(gateway)
    services = gateway.services
    organization = services.accounts.authentication.caller(gateway.key).organization_id
    services.management.set_unlimited(organization, False, actor="operator")
    with pytest.raises(APIStatusError) as refused:
        send_chat(gateway)
    assert refused.value.code == "insufficient_credits"
    services.management.set_unlimited(organization, True, actor="operator")
    send_chat(gateway)
    services.billing.settlements.maintain()
    assert doctor(services.store.database) == []


@pytest.mark.parametrize(("amount", "said"), [("unlimited", "unlimited"), ("12.5", "$12.5 prepaid")])
def test_the_first_start_says_which_it_is(settings: Callable[..., Settings], amount: str, said: str) -> None:
    chosen = settings(GATEWAY_BOOTSTRAP_CREDITS_USD=amount)
    migrate_store(chosen)
    services = build(chosen)
    store = services.store
    administration = Administration(store.database, store.control, store.secrets, services.background.threads)
    first = administration.bootstrap(chosen, services.billing.ledger.begin)
    assert any(said in text for text in describe_key(first) if text.startswith("Credits: "))
    services.close()
