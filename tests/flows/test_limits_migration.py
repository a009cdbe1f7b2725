"""Limits of keys, members, teams, provider keys, sessions and runs of an installation from before they were rows of
`limits`: the same answers after the migration."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from gevent import subprocess
from support.gateways import LocalGateway, local_gateway
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.spending import SECRETS, TOKEN_NUSD, write_mint

from gateway.accounts.agent_budgets import set_agent_budgets
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.accounts.spending_limits import SpendingLimits
from gateway.accounts.teams import create_team, list_teams, set_team_member
from gateway.admin.funding import Funding
from gateway.billing.reconciliation import doctor
from gateway.configuration.settings import ROOT, Settings
from gateway.limits.budgets import Limits
from gateway.limits.models import MEMBER, TEAM
from gateway.limits.owned_rows import PARTS as OWNERS
from gateway.limits.periods import make_calendar_period, make_period

STEP = importlib.import_module("migrations.0079_owned_limits")
CALL_NUSD = 100 * TOKEN_NUSD
# Two calls fit under each limit, and the third does not.
ROOM_NUSD = 2 * CALL_NUSD + CALL_NUSD // 2
CODES = {
    "key": "key_limit_reached",
    "key period": "key_period_limit_reached",
    "member": "member_limit_reached",
    "team": "team_limit_reached",
    "provider key": "provider_key_limit_reached",
    "session": "session_budget_reached",
    "run": "run_budget_reached",
}
PARTS = tuple(CODES)
ADDED = """
DROP INDEX limits_owner; DROP INDEX limits_free; DROP INDEX limits_acting;
ALTER TABLE limits DROP COLUMN owner; ALTER TABLE limits DROP COLUMN acts
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def gateway(
    request: pytest.FixtureRequest, settings: Callable[..., Settings], tmp_path: Path
) -> Iterator[LocalGateway]:
    with FakeUpstream() as mint:
        environment = write_mint(tmp_path / "catalogue", mint.url) | {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
        if request.param == "postgresql":
            environment |= SECRETS | {"DATABASE_URL": request.getfixturevalue("postgresql_url")}
        with local_gateway(settings, **environment) as found:
            yield found


class Installation:
    """Organizations, each with a key under one kind of limit, two calls of which are used."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        self.services = gateway.services
        self.stores = (self.services.store.database, self.services.store.control)
        self.desk = SignedInOwner(gateway.address)
        self.keys: dict[str, str] = {}
        self.organizations: dict[str, str] = {}
        self.headers = {"session": {"X-LLMGateway-Session": "one"}, "run": {"X-LLMGateway-Run": "one"}}
        for part in PARTS:
            organization, project, key = gateway.settle(part.replace(" ", "-"), 10**12)
            self.organizations[part], self.keys[part] = organization, key
            self._limit(part, organization, project)
        for part in PARTS:
            assert [self.send(part).status_code for _ in range(2)] == [200, 200]
        self.rest()

    def _limit(self, part: str, organization: str, project: str) -> None:
        caller = self.services.accounts.authentication.caller(self.keys[part])
        funding = Funding(*self.stores)
        member, key = caller.member_id, caller.key_id
        month = make_calendar_period(1, "month", "Europe/Berlin")
        exact = {"reservation": "exact", "alert_at": (50, 90)}
        if part == "key":
            funding.set_limits("key", key, organization, lambda _: Limits(ROOM_NUSD, **exact), actor="operator")
        elif part == "key period":
            limits = Limits(None, ROOM_NUSD, make_period(1, "day"), **exact)
            funding.set_limits("key", key, organization, lambda _: limits, actor="operator")
        elif part == "member":
            limits = Limits(None, ROOM_NUSD, month, **exact)
            funding.set_limits(MEMBER, member, organization, lambda _: limits, actor="operator")
        elif part == "team":
            team = create_team(*self.stores, organization, "Search", actor="operator")
            set_team_member(*self.stores, team.id, member, True, actor="operator")
            limits = Limits(ROOM_NUSD, **exact)
            funding.set_limits(TEAM, team.id, organization, lambda _: limits, actor="operator")
        elif part == "provider key":
            update_project(*self.stores, project, ProjectChange(mode="api-keys"), actor="operator")
            draft = ProviderKeyDraft("mint", "secret-of-mint", "own", max_spend_nusd=ROOM_NUSD)
            self.services.management.provider_keys.add(organization, draft, actor="operator")
        elif part == "session":
            self._limit_sessions(key, organization, "session_nusd")
        elif part == "run":
            self._limit_sessions(project, organization, "run_nusd")

    def _limit_sessions(self, scope_id: str, organization: str, column: str) -> None:
        changes = {column: ROOM_NUSD}
        set_agent_budgets(*self.stores, scope_id, organization, changes, action="limit.set", actor="operator")

    def send(self, part: str) -> httpx.Response:
        body = {"model": "mint/coin", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"Authorization": f"Bearer {self.keys[part]}", **self.headers.get(part, {})}
        return httpx.post(f"{self.gateway.url}/chat/completions", json=body, headers=headers, timeout=60)

    def rest(self) -> None:
        billing = self.services.billing
        self.services.store.journal.flush(60)
        billing.settlements.reap()
        billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)

    def answers(self) -> dict[str, Any]:
        """Return what the API, the client and refusals say, without what differs between two calls."""
        found: dict[str, Any] = {}
        management = self.services.management
        for part in PARTS:
            caller = self.services.accounts.authentication.caller(self.keys[part])
            organization = self.organizations[part]
            database = self.stores[0]
            statuses = management.budgets.statuses([caller.key_id, caller.member_id])
            teams = [management.budgets.status(team.id) for team in list_teams(database, organization)]
            refused = self.send(part)
            assert len(SpendingLimits(*self.stores).list_owned(organization, OWNERS, "", 100)) == 1
            found[part] = {
                "status": [repr(status) for status in (*statuses.values(), *teams)],
                "own": httpx.get(
                    f"{self.gateway.url}/key", headers={"Authorization": f"Bearer {self.keys[part]}"}, timeout=20
                ).json(),
                "refusal": (refused.status_code, refused.json().get("error")),
                "limits": repr(SpendingLimits(*self.stores).list_owned(organization, OWNERS, "", 100)),
                "headers": sorted(name for name in refused.headers if name.startswith("x-llmgateway")),
            }
        found["first organization"] = self.desk("GET", f"/orgs/{self.first()}/limits?all=true")
        return found

    def first(self) -> str:
        return str(self.desk("GET", "/orgs")["organizations"][0]["id"])

    def forget_rows(self) -> None:
        """Return the database to the previous migration; budgets and settings of sessions never changed."""
        database = self.stores[0]

        def work() -> None:
            database.execute("DELETE FROM limits WHERE owner <> ''")
            for statement in ADDED.split(";"):
                database.execute(statement)

        database.write(work)

    def migrate(self) -> None:
        database = self.stores[0]
        database.write(lambda: STEP.up(None, database.peewee))

    def rows(self) -> list[tuple[Any, ...]]:
        database = self.stores[0]
        sql = (
            "SELECT id, organization, name, owner, subjects, amount_nusd, limit_nusd, alert_at, period, actions, "
            "reservation, raise_nusd FROM limits ORDER BY id"
        )
        return [
            (*row[:4], json.loads(row[4]), *row[5:9], json.loads(row[9]), *row[10:])
            for row in database.read(lambda: database.fetch(sql, ()))
        ]


def test_limits_of_each_kind_answer_the_same_after_the_migration(gateway: LocalGateway) -> None:
    old = Installation(gateway)
    rows = old.rows()
    before = old.answers()
    assert {part: before[part]["refusal"][0] for part in PARTS} == dict.fromkeys(CODES, 402)
    assert {part: before[part]["refusal"][1]["code"] for part in CODES} == CODES
    old.forget_rows()
    old.migrate()
    assert old.rows() == rows and len(rows) == len(CODES)
    assert old.answers() == before
    old.rest()
    assert doctor(old.stores[0]) == []


def test_the_client_shows_the_limits_of_before(gateway: LocalGateway) -> None:
    old = Installation(gateway)
    organization = old.first()
    key = old.desk.make_key(usageLimit="5")
    old.desk("PATCH", f"/keys/api/{key['id']}/session-budget", {"sessionBudget": "0.5"})
    body = {"name": "Reader", "scopes": ["limits:read", "keys:read", "settings:read"]}
    token = old.desk("POST", f"/orgs/{organization}/service-accounts", body)["serviceAccount"]["token"]

    def show() -> list[Any]:
        return [list_by_client(gateway, token), run_client(gateway, token, "budget", "get", key["id"])]

    before = show()
    assert [one["id"] for one in before[0]] == [f"{key['id']}:session", f"{key['id']}:total"]
    old.forget_rows()
    old.migrate()
    assert show() == before


def list_by_client(gateway: LocalGateway, token: str) -> list[dict[str, Any]]:
    return json.loads(run_client(gateway, token, "budget", "list", "--all", "--json"))


def run_client(gateway: LocalGateway, token: str, *arguments: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "cli"),
        "LLMGATEWAY_CONFIG_DIR": "/nonexistent",
        "LLMGATEWAY_SERVICE_TOKEN": token,
        "LLMGATEWAY_GATEWAY_URL": gateway.url,
        "LLMGATEWAY_API_URL": gateway.address,
    }
    command = [sys.executable, "-m", "llmgateway_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
