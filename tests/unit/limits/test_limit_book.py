"""Limits are read from memory, which many organizations cannot fill."""

import pytest
from support.clock import FakeClock

from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.organizations import create_organization
from gateway.accounts.spending_limits import SpendingLimits
from gateway.control.version import Control
from gateway.limits import limit_book
from gateway.limits.limit_book import LimitBook
from gateway.limits.limit_rules import Subject
from gateway.store.database import Database

ACTOR = {"actor": "test"}


def test_limits_of_the_oldest_organization_are_read_again_where_all_are_too_many(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.bind()
    monkeypatch.setattr(limit_book, "MAX_ORGANIZATIONS", 1)
    clock = FakeClock()
    control = Control.observer(database, clock)
    limits = SpendingLimits(database, control)
    first, second = (create_organization(database, control, name, **ACTOR).id for name in ("First", "Second"))
    for organization in (first, second):
        limits.put(organization, "users", LimitDraft((Subject("user", each=True),), 5), **ACTOR)
    book = LimitBook(database, control, clock)
    reads = []
    reading = limit_book.read_limits

    def read(of: Database, organization: str, acting: bool) -> limit_book.OrganizationLimits:
        reads.append(organization)
        return reading(of, organization, acting)

    monkeypatch.setattr(limit_book, "read_limits", read)
    for organization in (first, first, second, second, first):
        found = book.find(organization)
        assert found is not None and [rule.name for rule in found.rules] == ["users"]
    assert reads == [first, second, first]
