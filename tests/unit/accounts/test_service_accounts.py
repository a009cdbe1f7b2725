"""Service accounts in both stores: how their tokens are found, and when they are refused."""

from typing import Any

import pytest

from gateway.accounts.service_accounts import (
    USE_ACCURACY_S,
    NewServiceAccount,
    ServiceAccountDraft,
    ServiceAccounts,
    ServiceAccountTokens,
)
from gateway.callers.models import Organization, ServiceAccount
from gateway.clock import SECOND_US
from gateway.errors import Forbidden, Gone, Unauthenticated

DAY_US = 86_400 * SECOND_US


def create(company: Any, **more: Any) -> NewServiceAccount:
    accounts = ServiceAccounts(company.database, company.control, company.secrets.hash_keys)
    draft = ServiceAccountDraft("Robot", ["keys:read", "keys:read", "audit:read"], **more)
    return accounts.create(company.organization_id, draft, actor="operator")


@pytest.fixture
def tokens(company: Any) -> ServiceAccountTokens:
    return ServiceAccountTokens(
        company.database, company.authentication(), company.control, company.secrets, company.clock
    )


def test_a_token_gives_its_account_with_sorted_scopes(company: Any, tokens: ServiceAccountTokens) -> None:
    account = create(company)
    known = tokens.find(account.token, "")
    assert known.info.id == account.info.id and known.info.scopes == ("audit:read", "keys:read")
    assert (known.member.role, known.member.user_id) == ("admin", account.info.id)


def test_expiry_is_checked_at_the_moment_of_use(company: Any, tokens: ServiceAccountTokens, clock: Any) -> None:
    account = create(company, expires_at_us=company.database.now_us() + DAY_US)
    tokens.find(account.token, "")
    clock.advance(2 * 86_400)
    with pytest.raises(Unauthenticated):
        tokens.find(account.token, "")


@pytest.mark.parametrize("token", ["llmgsa_unknown", "llmgsa_", "", "llmgsa_\0"])
def test_unknown_tokens_are_refused(tokens: ServiceAccountTokens, token: str) -> None:
    with pytest.raises(Unauthenticated):
        tokens.find(token, "127.0.0.1")


def test_accounts_of_a_blocked_organization_are_refused(company: Any, tokens: ServiceAccountTokens) -> None:
    account = create(company)
    company.database.write(Organization.update(status="blocked").execute)
    with pytest.raises(Gone):
        tokens.find(account.token, "")


def test_an_unknown_address_fails_an_address_rule(company: Any, tokens: ServiceAccountTokens) -> None:
    account = create(company, networks=["192.0.2.0/24"])
    tokens.find(account.token, "192.0.2.7")
    for address in ("", "198.51.100.1", "::1"):
        with pytest.raises(Forbidden):
            tokens.find(account.token, address)


def test_the_time_of_use_is_written_rarely(company: Any, tokens: ServiceAccountTokens, clock: Any) -> None:
    account = create(company)

    def last_use() -> int:
        row: ServiceAccount = company.database.read(lambda: ServiceAccount.get_by_id(account.info.id))
        return row.last_used_at

    tokens.find(account.token, "")
    first = last_use()
    assert first
    clock.advance(1)
    tokens.find(account.token, "")
    assert last_use() == first
    clock.advance(USE_ACCURACY_S)
    tokens.find(account.token, "")
    assert last_use() > first
