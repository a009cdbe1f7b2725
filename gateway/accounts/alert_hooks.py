"""Webhooks and e-mail addresses for alerts. Those of the first organization receive alerts of the installation."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gateway import ids
from gateway.accounts import audit, organizations
from gateway.accounts.changes import commit
from gateway.accounts.members import read_email
from gateway.callers.models import Member, Team, User
from gateway.callers.vault import Vault
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database
from gateway.transport import webhook_delivery
from gateway.transport.addresses import check_spelling, read_receiver

STORED_ALERTS = "alert"  # kind of the documents with alerts that wait for their delivery
MAX_HOOKS = 20
# Events to choose from. Without a choice, the operator's hooks receive all events, others those of their organization.
EVENTS = (
    "budget.nearly_spent",
    "budget.spent",
    "credits.low",
    "credits.spent",
    "credential.refused",
    "provider.resting",
    "model.retiring",
    "session.cache_lost",
    "usage.unusual",
    "checker.failing",
    "books.differ",
    "database.away",
    "redis.away",
    "leases.swept",
    "recovery.done",
)
# Ends of problems: the addresses that were sent the problem are sent its end too.
ENDS = (
    "budget.back",
    "credits.back",
    "credential.back",
    "provider.back",
    "session.cache_back",
    "usage.usual",
    "checker.back",
    "books.agree",
    "database.back",
    "redis.back",
)
COLUMNS = "id, organization, url, secret, events, created_at, form, team"
# Forms of alerts, and the hosts of addresses by which they are recognised: equal, or ending so.
WEBHOOK = "webhook"
SLACK = "slack"
TEAMS = "teams"
DISCORD = "discord"
PAGERDUTY = "pagerduty"
EMAIL = "email"
HOSTS = {
    "hooks.slack.com": SLACK,
    "hooks.slack-gov.com": SLACK,
    ".webhook.office.com": TEAMS,
    ".logic.azure.com": TEAMS,
    ".api.powerplatform.com": TEAMS,
    "discord.com": DISCORD,
    "discordapp.com": DISCORD,
    "events.pagerduty.com": PAGERDUTY,
    "events.eu.pagerduty.com": PAGERDUTY,
}
FORMS = (WEBHOOK, *dict.fromkeys(HOSTS.values()), EMAIL)
MAILTO = "mailto:"
PAGERDUTY_KEY = re.compile(r"[0-9A-Za-z]{32}")
# Kinds of ids in alerts, and the query of their names.
NAMES = {
    "org": "SELECT id, name FROM organization WHERE id = ?",
    "proj": "SELECT id, name FROM project WHERE id = ?",
    "key": "SELECT id, description FROM api_key WHERE id = ?",
    "member": 'SELECT m.id, u.email FROM member m JOIN "user" u ON u.id = m.user_id WHERE m.id = ?',
    "team": "SELECT id, name FROM team WHERE id = ?",
    "pkey": "SELECT id, CASE WHEN label = '' THEN mask ELSE label END FROM provider_key WHERE id = ?",
}
MAX_NAME_LENGTH = 80
# Kinds of ids in alerts that concern teams, and the query of the teams.
TEAMS_OF = {
    "team": "SELECT id FROM team WHERE id = ?",
    "member": "SELECT team_id FROM team_member WHERE member_id = ?",
    "key": "SELECT m.team_id FROM team_member m JOIN api_key k ON k.member_id = m.member_id WHERE k.id = ?",
}


@dataclass(frozen=True, slots=True)
class AlertHook:
    """An alert hook. `events` () means all events. `form` is one of FORMS. `team` limits it to alerts about that team,
    its members and their keys; "" = no limit. The secret is set only where alerts are delivered: it signs webhooks, and
    is the integration key of PagerDuty. `operators`, also set only there, is true if the hook belongs to the
    organization that runs the installation."""

    id: str
    organization_id: str
    url: str
    events: tuple[str, ...]
    created_at_us: int
    secret: str = field(default="", repr=False)
    form: str = WEBHOOK
    operators: bool = False
    team: str = ""

    def wants(self, events: Collection[str]) -> bool:
        """Return whether the hook receives any of some events."""
        return not self.events or not set(self.events).isdisjoint(events)


class AlertHooks:
    """Changes are audited. `allow_private`: addresses of private networks may be added."""

    def __init__(self, database: Database, control: Control, vault: Vault, allow_private: bool = False) -> None:
        self._database = database
        self._control = control
        self._vault = vault
        self._allow_private = allow_private

    def add(
        self,
        organization_id: str,
        url: str,
        events: Sequence[str] = (),
        *,
        form: str = "",
        routing_key: str = "",
        team: str = "",
        actor: str,
    ) -> AlertHook:
        """A new one, with its secret. `form` "" is recognised by the address; `routing_key` is PagerDuty's. NotFound
        (organization, team), InvalidRequest (address, events, form, routing key, too many)."""
        chosen = _read_events(events)
        form = _read_form(form, url)
        url = self._read_address(url, form)
        ident = ids.new("hook")
        secret = _make_secret(form, routing_key)
        sealed = self._vault.seal(secret)

        def work(now: int) -> AlertHook:
            organizations.load_organization(organization_id)
            if form == EMAIL:
                _check_recipient(organization_id, url.removeprefix(MAILTO))
            if team and not Team.select().where(Team.id == team, Team.organization == organization_id).exists():
                raise NotFound(f"There is no team {team[:80]} in this organization.")
            if len(self._select(organization_id)) >= MAX_HOOKS:
                raise InvalidRequest(f"An organization has at most {MAX_HOOKS} addresses for alerts.", param="url")
            values = (ident, organization_id, url, sealed, json.dumps(chosen), now, form, team)
            self._database.execute(f"INSERT INTO alert_hook ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            detail = {"host": urlsplit(url).hostname, "form": form}
            if team:
                detail["team"] = team
            _audit("alert_hook.create", ident, organization_id, detail, actor, now)
            return AlertHook(ident, organization_id, url, chosen, now, secret, form, team=team)

        return commit(self._database, self._control, work, confirm=False)

    def _read_address(self, url: str, form: str) -> str:
        if form == EMAIL:
            return MAILTO + read_email(url.strip().removeprefix(MAILTO))
        url = read_receiver(url, "url")
        if not self._allow_private:
            check_spelling(url, "url")
        return url

    def names_of(self, idents: Iterable[str]) -> dict[str, str]:
        """The names of those ids that have one, as they may be shown: one line, at most MAX_NAME_LENGTH characters."""

        def read() -> list[tuple[Any, ...]]:
            return [row for sql, params in _queries(NAMES, idents) for row in self._database.fetch(sql, params)]

        names = self._database.read(read)
        return {ident: " ".join(name.split())[:MAX_NAME_LENGTH] for ident, name in names if name and name.strip()}

    def remove(self, organization_id: str, hook_id: str, *, actor: str) -> None:
        """NotFound."""

        def work(now: int) -> None:
            sql = "DELETE FROM alert_hook WHERE id = ? AND organization = ?"
            if not self._database.execute(sql, (hook_id, organization_id)).rowcount:
                raise NotFound(f"There is no address for alerts {hook_id}.")
            _audit("alert_hook.delete", hook_id, organization_id, {}, actor, now)

        commit(self._database, self._control, work, confirm=False)

    def list_hooks(self, organization_id: str) -> list[AlertHook]:
        """Return the hooks of an organization, without secrets."""
        return [_info(row) for row in self._database.read(partial(self._select, organization_id))]

    def find(self, organization_id: str, hook_id: str) -> AlertHook:
        """Return a hook with its secret. Raises NotFound."""
        rows = self._database.read(partial(self._select, organization_id))
        hook_row = next((row for row in rows if row[0] == hook_id), None)
        if hook_row is None:
            raise NotFound(f"There is no address for alerts {hook_id}.")
        return _info(hook_row, self._vault.open(hook_row[3]))

    def concerned(self, events: Collection[str], organization_id: str, idents: Collection[str] = ()) -> list[AlertHook]:
        """Return the hooks, with secrets, for any of some events of an organization ("": of the installation) that
        concern the objects with the ids `idents`."""

        def read() -> tuple[str, list[tuple[Any, ...]], set[str]]:
            first = organizations.first_id()
            sql = f"SELECT {COLUMNS} FROM alert_hook WHERE organization IN (?, ?) ORDER BY id"
            rows = self._database.execute(sql, (first, organization_id)).fetchall()
            if any(row[7] for row in rows):
                teams = {
                    team for sql, ident in _queries(TEAMS_OF, idents) for (team,) in self._database.fetch(sql, ident)
                }
            else:
                teams = set()
            return first, rows, teams

        first, rows, teams = self._database.read(read)
        hooks = [replace(_info(row, self._vault.open(row[3])), operators=row[1] == first) for row in rows]
        return [hook for hook in hooks if hook.wants(events) and (not hook.team or hook.team in teams)]

    def _select(self, organization_id: str) -> list[tuple[Any, ...]]:
        sql = f"SELECT {COLUMNS} FROM alert_hook WHERE organization = ? ORDER BY id"
        return list(self._database.execute(sql, (organization_id,)).fetchall())


def _queries(queries: Mapping[str, str], idents: Iterable[str]) -> list[tuple[str, tuple[str]]]:
    """Return the queries for the kinds of these ids, with their parameters."""
    return [(queries[kind], (ident,)) for ident in idents if (kind := ident.partition("_")[0]) in queries]


def _info(row: tuple[Any, ...], secret: str = "") -> AlertHook:
    ident, organization_id, url, _, events, created_at, form, team = row
    chosen = tuple(json.loads(events))
    return AlertHook(ident, organization_id, url, chosen, created_at, secret, form or WEBHOOK, team=team)


def recognise_form(url: str) -> str:
    """Return the format for a URL by its host; WEBHOOK for an unknown host."""
    if url.strip().lower().startswith(MAILTO):
        return EMAIL
    try:
        host = (urlsplit(url.strip()).hostname or "").lower()
    except ValueError:
        return WEBHOOK
    return next(
        (form for known, form in HOSTS.items() if host == known or (known[0] == "." and host.endswith(known))), WEBHOOK
    )


def _read_form(form: str, url: str) -> str:
    if form and form not in FORMS:
        raise InvalidRequest(f"There is no form {form[:40]!r} of alerts; there are: {', '.join(FORMS)}.", param="form")
    return form or recognise_form(url)


def _check_recipient(organization_id: str, email: str) -> None:
    """InvalidRequest unless an active member has the address: others must not be sent mail. The first organization is
    the operator's, and may have any."""
    if organization_id == organizations.first_id():
        return
    members = Member.select().join(User).where(Member.organization == organization_id, Member.status == "active")
    if not members.where(User.email == email).exists():
        raise InvalidRequest("Alerts by e-mail can be sent only to members of the organization.", param="url")


def _make_secret(form: str, routing_key: str) -> str:
    if form != PAGERDUTY:
        if routing_key:
            raise InvalidRequest("Only PagerDuty webhooks have a routing key.", param="routingKey")
        return webhook_delivery.make_secret()
    if not PAGERDUTY_KEY.fullmatch(routing_key):
        text = "PagerDuty requires the integration key of an Events API v2 integration: 32 letters and digits."
        raise InvalidRequest(text, param="routingKey")
    return routing_key


def _read_events(events: Sequence[str]) -> tuple[str, ...]:
    unknown = [event for event in events if event not in EVENTS]
    if unknown:
        raise InvalidRequest(f"There is no alert {unknown[0][:80]!r}; there are: {', '.join(EVENTS)}.", param="events")
    return tuple(dict.fromkeys(events))


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, Any], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
