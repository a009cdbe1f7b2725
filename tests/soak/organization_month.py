"""The usage of an organization's month: two projects, five people in overlapping teams, their keys, and sessions of
agents. Its sums in plain Python are read from the rows."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from support.gateways import GatewayProcess
from support.signed_in_owner import EMAIL, SignedInOwner
from support.spending import query

from bench.rollups import EMPTY, PLACES
from gateway.clock import DAY_US, from_datetime, to_datetime
from gateway.metering.models import BYOK, CREDITS
from gateway.metering.usage_table import raw_id
from gateway.reports.focus import Month, read_month
from gateway.store.partitions import id_at

PEOPLE = ("ada", "ben", "cleo", "dan")
# Ada is in two teams; the owner is in none.
TEAMS = {"search": ("ada", "ben"), "ads": ("ada", "cleo", "dan")}
KEYS = 4  # of each person in each project
MODELS, APPS, TAG_TEAMS, TAG_USERS = 12, 5, 50, 200
OPEN, TURNS = 60, 20  # sessions at a time, and turns of a session on average
# The figures of usage: requests, tokens (input, from a cache, output), and nano-dollars (all, of own provider keys, for
# storage).
Figures = tuple[int, ...]
BY = ("team", "person", "key", "model", "provider", "app", "session", "tag team", "tag user")


class Key(NamedTuple):
    """An API key and its owner, as ids."""

    id: str
    project: str
    member: str


class Organization(NamedTuple):
    """`teams` are the ids of the teams of each member."""

    id: str
    keys: list[Key]
    teams: dict[str, list[str]]


def last_month() -> Month:
    today = datetime.now(UTC)
    first = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return read_month(to_datetime(from_datetime(first) - DAY_US).strftime("%Y-%m"))


def found(address: str) -> Organization:
    """Add people, teams, a project and keys to the organization of a new gateway."""
    owner = SignedInOwner(address)
    organization: str = owner("GET", "/orgs")["organizations"][0]["id"]
    owner("POST", "/projects", {"organizationId": organization, "name": "Second"})
    projects = [project["id"] for project in owner("GET", f"/orgs/{organization}/projects")["projects"]]
    people = {EMAIL: owner}
    for name in PEOPLE:
        email = f"{name}@example.com"
        people[email] = owner.add_member(organization, email, "admin")
    members = {member["email"]: member["id"] for member in owner("GET", f"/orgs/{organization}/members")["members"]}
    teams: dict[str, list[str]] = {}
    for team, names in TEAMS.items():
        ident = owner("POST", f"/orgs/{organization}/teams", {"name": team})["team"]["id"]
        for name in names:
            member = members[f"{name}@example.com"]
            owner("PUT", f"/orgs/{organization}/teams/{ident}/members/{member}")
            teams.setdefault(member, []).append(ident)
    keys = []
    for email, person in people.items():
        for project in projects:
            for number in range(KEYS):
                created_key = person("POST", "/keys/api", {"description": f"key {number}", "projectId": project})[
                    "apiKey"
                ]
                keys.append(Key(created_key["id"], project, members[email]))
    return Organization(organization, keys, teams)


class Session:
    """A conversation of an agent: one key, app and main model."""

    def __init__(self, dice: random.Random, organization: Organization) -> None:
        self.name = dice.randbytes(16).hex()
        self.key = dice.choice(organization.keys)
        self.app = f"app-{dice.randrange(APPS)}"
        self.model = dice.randrange(MODELS)
        tags = {"team": f"team-{dice.randrange(TAG_TEAMS)}", "user": f"user-{dice.randrange(TAG_USERS)}"}
        self.tags = json.dumps(tags, separators=(",", ":"))


def rows_of(organization: Organization, month: Month, count: int) -> Iterator[tuple[Any, ...]]:
    """Yield usage rows evenly over the month, in the order of their time: paid by credits or an own key, some with
    storage, some without a session or tags."""
    dice = random.Random(5)
    draw = dice.random
    base = EMPTY | {"organization": raw_id(organization.id), "input_nusd": 7, "output_nusd": 9}
    values = list(base.values())
    place = PLACES
    raw = {key: (raw_id(key.project), raw_id(key.id), raw_id(key.member)) for key in organization.keys}
    sessions = [Session(dice, organization) for _ in range(OPEN)]
    width = (month.end_us - month.start_us) / count
    for number in range(count):
        at_us = int(month.start_us + number * width)
        chosen = int(draw() * OPEN)
        session = sessions[chosen]
        if draw() * TURNS < 1:
            sessions[chosen] = Session(dice, organization)
        model = (0, session.model)[draw() < 0.85]
        values[place["at"]] = values[place["posted_at"]] = at_us
        values[place["request"]] = id_at(at_us)[:6] + dice.randbytes(10)
        values[place["project"]], values[place["api_key"]], values[place["member"]] = raw[session.key]
        values[place["provider"]], values[place["served"]] = f"provider-{model % 3}", f"model-{model}"
        values[place["source"]] = session.app
        values[place["input"]], values[place["output"]] = int(draw() * 3000), int(draw() * 500)
        values[place["cache_read"]] = int(draw() * 30_000)
        values[place["cost_nusd"]] = int(draw() * 10**7)
        values[place["mode"]] = (BYOK, CREDITS)[draw() < 0.8]
        values[place["storage_nusd"]] = (None, 1001)[draw() < 0.1]
        values[place["session"]] = (None, session.name)[draw() < 0.9]
        values[place["tags"]] = (None, session.tags)[draw() < 0.9]
        yield tuple(values)


HEX = {"sqlite": "lower(hex(api_key))", "postgresql": "encode(api_key, 'hex')"}


def sum_rows(gateway: GatewayProcess, organization: Organization, kind: str) -> dict[str, dict[str, Figures]]:
    """Return the figures of the rows in a store of a kind by each of BY and their values; "" is usage without one."""
    sql = (
        f"SELECT {HEX[kind]}, provider, served, source, session, tags, COUNT(*), SUM(input + cache_read), "
        f"SUM(cache_read), SUM(output), SUM(cost_nusd), SUM(CASE WHEN mode = {BYOK} THEN cost_nusd ELSE 0 END), "
        "SUM(COALESCE(storage_nusd, 0)) FROM usage GROUP BY 1, 2, 3, 4, 5, 6"
    )
    members = {key.id: key.member for key in organization.keys}
    sums: dict[str, dict[str, list[int]]] = {by: {} for by in BY}
    for row in query(gateway, sql):
        key = f"key_{row[0]}"
        provider, served, app, session, tags = row[1:6]
        tagged = json.loads(tags or "{}")
        member = members[key]
        values = {
            **{"person": member, "key": key, "model": f"{provider}/{served}", "provider": provider, "app": app},
            **{"session": session or "", "tag team": tagged.get("team", ""), "tag user": tagged.get("user", "")},
        }
        figures = [int(figure) for figure in row[6:]]
        for team in organization.teams.get(member) or [""]:
            _add(sums["team"], team, figures)
        for by, value in values.items():
            _add(sums[by], value, figures)
    return {by: {value: tuple(figures) for value, figures in of.items()} for by, of in sums.items()}


def _add(sums: dict[str, list[int]], value: str, figures: list[int]) -> None:
    known = sums.get(value, [0] * len(figures))
    sums[value] = [a + b for a, b in zip(known, figures, strict=True)]
