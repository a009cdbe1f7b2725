"""Limits are read from memory, which many organizations cannot fill."""

import pytest
from support.clock import FakeClock

from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.organizations import create_organization
from gateway.accounts.spending_limits import SpendingLimits
from gateway.accounts.teams import create_team
from gateway.admin.owned_limit_changes import OwnedLimits
from gateway.control.version import Control
from gateway.limits import limit_book
from gateway.limits.limit_book import LimitBook
from gateway.limits.limit_rules import Subject, read_action
from gateway.limits.owned_rows import name_owned
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


def test_limits_of_owners_are_read_only_where_some_do_more_than_refuse(
    database: Database,
) -> None:
    database.bind()
    clock = FakeClock()
    control = Control.observer(database, clock)
    first, second = (create_organization(database, control, name, **ACTOR).id for name in ("First", "Second"))
    teams = [create_team(database, control, one, "Search", **ACTOR).id for one in (first, second)]
    changes = OwnedLimits(database, control, True)
    for organization, team, actions in zip((first, second), teams, ("warn@80 refuse@100", "refuse@100"), strict=True):
        name = name_owned(team, "total")
        draft = LimitDraft(name.subjects, 5, actions=tuple(map(read_action, actions.split())))
        changes.put(organization, name, draft, **ACTOR)
    book = LimitBook(database, control, clock)
    found = book.find(first)
    assert found is not None and found.acting and not found.rules and book.find(second) is None
    assert [rule.id for rule in book.find_acting(teams)] == [f"{teams[0]}:total"]
    stale = "UPDATE budget SET limit_nusd = 6 WHERE id = ?"
    database.write(lambda: database.execute(stale, (f"{teams[0]}:total",)))
    assert book.find_acting(teams) == ()
