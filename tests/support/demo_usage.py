"""A month of usage of a small company, so that the console's pages have something to show."""

import random
from typing import Any

import orjson
from support.agent_telemetry import add_outcomes
from support.demo_organization import add_demo_organization
from support.demo_providers import add_demo_providers
from support.gateways import LocalGateway
from support.usage import insert_rows, request_at, usage_row

from gateway.accounts import keys
from gateway.accounts.members import add_member, list_members
from gateway.accounts.projects import create_project
from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.limits.budgets import Limits
from gateway.limits.leases import LeaseRequest, insert_budget
from gateway.limits.models import KEY, MEMBER, TOTAL, budget_id
from gateway.metering.models import SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO
from gateway.store.database import Database

# Model, provider, dollars of a request, share of the requests.
MODELS = (
    ("claude-sonnet-4-5", "anthropic", 0.0214, 30),
    ("gpt-5", "openai", 0.0171, 26),
    ("gpt-4o-mini", "openai", 0.0008, 22),
    ("gemini-2.5-flash", "google-ai-studio", 0.0013, 14),
    ("mistral-large-latest", "mistral", 0.0052, 8),
)
SOURCES = ("claude-code", "support-bot", "cursor", "search.acme.example", "")
AGENTS = "Coding agents"
TEAMS = ("search", "support", "platform", "research")
# Description, spending limit in dollars, share of the requests.
KEYS = (("Support bot", 400, 40), ("Search ranking", 120, 25), (AGENTS, 90, 20), ("Evaluation", None, 10))
REPOSITORIES = ("acme/billing", "acme/search", "acme/website")
PEOPLE = ("ada@acme.example", "grace@acme.example", "alan@acme.example", "edsger@acme.example")
DAYS = 45
OVERLOADED = "Overloaded: the service has more requests than it can handle. Please try again in a moment."

# A routing decision as gateway/routing/record.py packs it: two ranked providers, and one without a key.
DECISION = [
    *(1, "claude-sonnet-4-5", 0, 5, "", 0, ""),
    [
        ["anthropic", 112_000, 6_600_000, 99_200, 4_100, 7_800],
        ["aws-bedrock", 154_000, 6_600_000, 99_900, 5_200, 6_100],
    ],
    *([], [[5, "no credential", ["vertex-anthropic"]]]),
]


def add_demo_usage(gateway: LocalGateway, a_day: int = 60) -> str:
    """Add people, keys and 45 days of usage to the gateway's first organization, and return its owner's session."""
    services = gateway.services
    stores = services.store.database, services.store.control
    organization = gateway.organization_id
    project = create_project(*stores, organization, "Customer service", actor="test")
    dice = random.Random(7)
    key_weights = []
    for (description, limit, _), email in zip(KEYS, PEOPLE, strict=True):
        member = add_member(*stores, organization, email, "developer", actor="test")
        limits = Limits(limit * NANO if limit else None)
        draft = keys.Draft(project.id, member.id, description)
        key_weights.append((services.management.create_key(draft, limits, actor=member.user_id).info, member))
    now = services.clock.now_us()
    rows = []
    for day in range(DAYS):
        busy = (1.0 if (now // DAY_US - day + 3) % 7 < 5 else 0.35) * (1.4 - day / DAYS)
        for _ in range(round(a_day * busy)):
            at = now - day * DAY_US - dice.randrange(1, 20 * HOUR_US)
            model, provider, dollars, _ = dice.choices(MODELS, [model[3] for model in MODELS])[0]
            key, member = dice.choices(key_weights, [key[2] for key in KEYS])[0]
            failed = dice.random() < 0.02
            cost = 0 if failed else round(dollars * dice.lognormvariate(0, 0.7) * 12 * NANO)
            values: dict[str, Any] = {
                "organization": raw_id(organization),
                "project": raw_id(project.id),
                "api_key": raw_id(key.id),
                "member": raw_id(member.id),
            }
            if key.description == AGENTS:
                values |= {"session": f"refactoring-{day:02}-{dice.randrange(3)}", "cache_read": dice.randrange(9_000)}
            if dice.random() < 0.8:
                values["tags"] = orjson.dumps({"team": dice.choice(TEAMS)}).decode()
            tokens = dice.randrange(200, 6_000)
            rows.append(
                usage_row(
                    min(at, now - 1_000_000),
                    posted_at=now,  # rollups read rows in this order and began when the gateway was built
                    cost_nusd=cost,
                    input_nusd=cost // 3,
                    output_nusd=cost - cost // 3,
                    input=tokens,
                    output=dice.randrange(20, 1_500) * (not failed),
                    duration_ms=dice.randrange(300, 9_000),
                    ttft_ms=dice.randrange(120, 900),
                    kind=SETTLEMENT,
                    attempt=0,
                    status=503 if failed else 200,
                    operation="chat",
                    provider=provider,
                    asked=model,
                    served=model,
                    source=dice.choice(SOURCES),
                    finish="stop",
                    error="upstream_error" if failed else None,
                    **values,
                )
            )
    failover = make_failover(now - SECOND_US, rows[0])
    rows += failover
    database = services.store.database
    decision = (failover[0].request, raw_id(project.id), orjson.dumps(DECISION))
    database.write(
        lambda: database.execute("INSERT INTO decision (request, project, record) VALUES (?, ?, ?)", decision)
    )
    owned = [(key.id, raw_id(key.id), "api_key") for key, _ in key_weights]
    owned += [(member.id, raw_id(member.id), "member") for _, member in key_weights]
    for ident, raw, column in owned:
        spent = sum(row.cost_nusd for row in rows if getattr(row, column) == raw)
        set_spent(database, KEY if column == "api_key" else MEMBER, ident, spent)
    add_demo_outcomes(services.store.database, rows, {raw_id(key.id) for key, _ in key_weights[2:]}, dice)
    insert_rows(services.store.database, *sorted(rows, key=lambda row: row.at))
    services.billing.rollups.catch_up()
    members = list_members(services.store.database, organization)
    owner = next(member.user_id for member in members if member.role == "owner")
    add_demo_providers(gateway, owner)
    token = services.management.sessions.open(owner).token
    add_demo_organization(gateway, token, [member.id for _, member in key_weights[:2]])
    return token


def set_spent(database: Database, scope: str, ident: str, spent_nusd: int) -> None:
    """Set what a key or member has spent in all; the budget of a member begins with the first request."""
    budget = budget_id(ident, TOTAL)

    def work() -> None:
        insert_budget(database, LeaseRequest(budget, scope, ident, TOTAL), None)
        database.execute("UPDATE budget SET settled_nusd = ? WHERE id = ?", (spent_nusd, budget))

    database.write(work)


def add_demo_outcomes(database: Database, rows: list[UsageRecord], agents: set[bytes], dice: random.Random) -> None:
    """Add what the agents of some keys reported for their requests."""
    for row in rows:
        if row.api_key in agents and not row.error:
            edits = dice.randrange(4)
            add_outcomes(
                database,
                (row.organization, row.project, row.api_key, row.member),
                row.at // HOUR_US,
                row.session or "",
                dice.choice(REPOSITORIES) if row.session else "",
                sessions=int(dice.random() < 0.2),
                edits_accepted=edits,
                edits_rejected=int(dice.random() < 0.15),
                lines_added=edits * dice.randrange(2, 30),
                lines_removed=edits * dice.randrange(9),
                commits=int(dice.random() < 0.25),
                pull_requests=int(dice.random() < 0.06),
                active_ms=edits * dice.randrange(20_000, 200_000),
            )


def make_failover(at_us: int, owned: UsageRecord) -> list[UsageRecord]:
    """Return the calls of a request of the same owner as a row: the first provider failed, the second one answered."""
    common = owned._asdict() | {
        "request": request_at(at_us),
        "asked": "claude-sonnet-4-5",
        "served": "claude-sonnet-4-5",
    }
    common |= {"source": "support-bot", "operation": "chat", "kind": SETTLEMENT, "posted_at": at_us}
    nothing = dict.fromkeys(("cost_nusd", "input_nusd", "output_nusd", "output", "ttft_ms"), 0)
    failed = {"provider": "anthropic", "status": 529, "error": "upstream_overloaded", "finish": "", "duration_ms": 640}
    extra = orjson.dumps({"upstream_error": OVERLOADED}).decode()
    answered = {"provider": "aws-bedrock", "status": 200, "error": None, "finish": "stop", "attempt": 1, "input": 4_180}
    answered |= {"output": 612, "cost_nusd": 21_720_000, "input_nusd": 12_540_000, "output_nusd": 9_180_000}
    answered |= {"ttft_ms": 420, "duration_ms": 3_900}
    return [
        UsageRecord(**common | failed | nothing | {"at": at_us, "attempt": 0, "extra": extra}),
        UsageRecord(**common | answered | {"at": at_us + 660_000}),
    ]
