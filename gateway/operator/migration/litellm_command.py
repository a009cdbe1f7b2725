"""`migrate litellm`: models, keys, teams and budgets of LiteLLM, with a report of what has no counterpart."""

import csv
import io
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, field

from gateway import ids
from gateway.accounts import keys, members
from gateway.accounts.changes import OPERATOR, commit
from gateway.accounts.members import list_members
from gateway.accounts.organizations import list_organizations
from gateway.accounts.projects import list_projects
from gateway.accounts.rules import add_rule
from gateway.accounts.teams import create_team, list_teams, set_team_member
from gateway.admin import operator_rates
from gateway.clock import from_datetime
from gateway.errors import Conflict, GatewayError, InvalidRequest
from gateway.limits.budgets import Limits
from gateway.limits.periods import Period, make_period
from gateway.money import MAX_AMOUNT_NUSD, NANO, format_usd, read_decimal
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.migration.litellm_models import (
    MigrationReport,
    ModelMigration,
    ModelPlan,
    read_config,
    read_words,
    write_toml,
)
from gateway.operator.output import AS_JSON, is_json, only_one, print_json, printable
from gateway.runtime.plurals import many
from gateway.surfaces.visitors.tabular import write_cell
from gateway.worker.services import Services

# Keys, teams and budgets of LiteLLM, as its management API exports them, as projects, teams, members, keys and limits.
#
# The exports are the answers of GET /key/list?return_full_object=true, GET /team/list and GET /budget/list.

Row = dict[str, Any]
MAX_BYTES = 64 << 20
DURATION = re.compile(r"(\d{1,9})(s|m|h|d|w|mo)", re.ASCII)
HOUR_PARTS = {"s": 3600, "m": 60}
UNITS = {"h": "hour", "d": "day", "w": "week", "mo": "month"}
RATES = {"rpm_limit": "requests", "tpm_limit": "tokens", "max_parallel_requests": "concurrency"}
EVERYTHING = frozenset(("all-proxy-models", "all-team-models", "*"))
# Members that are identities, sums of the past, or read below.
READ = frozenset((
    *("token", "token_id", "key_name", "key_alias", "spend", "max_budget", "budget_duration", "budget_reset_at"),
    *("team_id", "team_alias", "user_id", "models", "rpm_limit", "tpm_limit", "max_parallel_requests", "expires"),
    *("blocked", "created_at", "updated_at", "created_by", "updated_by", "last_active", "last_refreshed_at"),
    *("budget_id", "litellm_budget_table", "organization_id", "org_id", "members", "members_with_roles", "admins"),
    *("keys", "user", "created_by_user", "team", "team_memberships", "members_count", "keys_count", "rotation_count"),
))  # fmt: skip
PROJECT = "LiteLLM"


class AccountPlan(Struct):
    """The accounts that the exports become. `teams` and `keys` are the rows of LiteLLM with their budgets."""

    teams: list[Row] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)


class IssuedKey(Struct, frozen=True):
    """A key that was made in place of another one."""

    name: str
    before: str  # what LiteLLM shows of the former key
    key_id: str
    token: str


def read_rows(path: Path | None, name: str) -> list[Row]:
    """Return the objects of an export, a list or an object with a list `name`. InvalidRequest."""
    if path is None:
        return []
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidRequest(f"{path} is larger than {MAX_BYTES >> 20} MiB.")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}.") from None
    rows = content.get(name) if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise InvalidRequest(f"{path} has neither a list nor an object with the list {name}.")
    if any(not isinstance(row, dict) for row in rows):
        raise InvalidRequest(f"{path} has only names: export whole objects, keys with return_full_object=true.")
    return rows


def plan_accounts(
    keys: list[Row], teams: list[Row], budgets: list[Row], report: MigrationReport, now_us: int
) -> AccountPlan:
    """Return the plan of the exported rows without keys that have expired, and tell what has no counterpart."""
    shared = {str(budget.get("budget_id")): budget for budget in budgets}
    plan = AccountPlan([_with_budget(row, shared) for row in teams])
    for row in keys:
        ends_at = _expiry(row)
        if ends_at is not None and ends_at <= now_us:
            report.absent.append(f"key {name_of(row)}: it has expired and was left out")
        else:
            plan.keys.append(_with_budget(row, shared))
    known = {str(team.get("team_id")) for team in plan.teams}
    for kind, rows in (("team", plan.teams), ("key", plan.keys)):
        for row in rows:
            _tell_row(kind, row, report)
    for row in plan.keys:
        if row.get("team_id") and str(row["team_id"]) not in known:
            report.todo.append(f"key {name_of(row)}: its team {row['team_id']} is not in the export of teams")
    if plan.keys:
        report.todo.append("keys: LiteLLM stores only hashes of keys, so each key gets a new token; hand them out")
    if any(row.get("spend") for row in (*plan.keys, *plan.teams)):
        report.replaced.append("spend: budgets begin at 0 here; the history stays in LiteLLM's database")
    return plan


def name_of(row: Row) -> str:
    """Return the name of a key or team."""
    for member in ("key_alias", "team_alias", "key_name", "team_id", "token"):
        if row.get(member):
            return str(row[member])[:100]
    return "unnamed"


def _with_budget(row: Row, shared: Mapping[str, Row]) -> Row:
    """Return the row with the values of the budget that it refers to, except for those that it has itself."""
    named = row.get("litellm_budget_table") or shared.get(str(row.get("budget_id")))
    own = {member: value for member, value in row.items() if value is not None}
    if not isinstance(named, dict):
        return own
    budget = {member: value for member, value in named.items() if value is not None and member in _OF_BUDGETS}
    return budget | own


_OF_BUDGETS = frozenset(("max_budget", "budget_duration", "soft_budget", "model_max_budget", *RATES))


def _tell_row(kind: str, row: Row, report: MigrationReport) -> None:
    name = f"{kind} {name_of(row)}"
    limits = describe_limits(row, report, name)
    report.taken.append(f"{name}{limits}")
    if kind == "team" and row.get("members_with_roles"):
        report.todo.append(f"{name}: invite {many(len(row['members_with_roles']), 'member')} (docs/console.md)")
    if row.get("soft_budget"):
        report.replaced.append(f"{name}: soft_budget: alerts come at shares of a limit (docs/limits.md)")
    for member in sorted(set(row) - READ - {"soft_budget"}):
        if row[member] not in ("", 0, False, [], {}):
            report.absent.append(f"{name}: {member}")
    wildcards = [model for model in models_of(row) if "*" in model]
    if wildcards and len(wildcards) < len(models_of(row)):
        report.todo.append(f"{name}: it may call its named models only; {', '.join(wildcards)} was left out")


def models_of(row: Row) -> list[str]:
    """Return the models that the row allows; [] for all."""
    models = [str(model) for model in row.get("models") or () if isinstance(model, str)]
    return [] if EVERYTHING.intersection(models) else models


def describe_limits(row: Row, report: MigrationReport, name: str) -> str:
    """Return the limits of a row in words, and tell what they were rounded to."""
    limits = limits_of(row, report, name)
    told = []
    if limits.total_nusd is not None:
        told.append(f"${format_usd(limits.total_nusd)} in total")
    if limits.period_nusd is not None:
        told.append(f"${format_usd(limits.period_nusd)} per {limits.period}")
    told += [f"{row[member]} {kind}" for member, kind in RATES.items() if _count(row.get(member))]
    return f" ({', '.join(told)})" if told else ""


def limits_of(row: Row, report: MigrationReport | None = None, name: str = "") -> Limits:
    """Return the spending limits of a key or team."""
    amount = row.get("max_budget")
    if amount is None or isinstance(amount, bool):
        return Limits()
    try:
        nusd = min(int(read_decimal(str(amount)) * NANO), MAX_AMOUNT_NUSD)
    except ValueError:
        return Limits()
    period = _period(str(row.get("budget_duration") or ""), report, name)
    if period is None:
        return Limits(total_nusd=max(0, nusd))
    return Limits(period_nusd=max(0, nusd), period=period)


def _period(text: str, report: MigrationReport | None, name: str) -> Period | None:
    found = DURATION.fullmatch(text)
    if found is None:
        if text and report is not None:
            report.todo.append(f"{name}: the period {text} is not known; the budget holds in total")
        return None
    amount, unit = int(found[1]), found[2]
    if unit in HOUR_PARTS:
        amount, unit = max(1, ceil(amount / HOUR_PARTS[unit])), "h"
        if report is not None:
            report.replaced.append(f"{name}: the shortest period is an hour; {text} is {amount}h")
    try:
        return make_period(amount, UNITS[unit])
    except GatewayError:
        if report is not None:
            report.todo.append(f"{name}: the period {text} is too long; the budget holds in total")
        return None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class AccountMigration:
    """Makes the accounts of a plan in one organization."""

    def __init__(
        self, services: Services, organization_id: str, names: Mapping[str, str], report: MigrationReport
    ) -> None:
        """`names` are the models that the callers' names mean here."""
        self._services = services
        self._stores = services.store.database, services.store.control
        self._organization_id = organization_id
        self._names = names
        self._providers = read_words().providers
        self._report = report
        self._places: dict[str, tuple[str, str]] = {}  # id of a team of LiteLLM → project and member that owns its keys
        self._left: set[str] = set()  # teams that existed before

    def apply(self, plan: AccountPlan) -> list[IssuedKey]:
        """Make teams, then keys. What exists under a name already is left as it is."""
        for team in plan.teams:
            self._add_team(team)
        return [issued for row in plan.keys if (issued := self._add_key(row)) is not None]

    def _add_team(self, row: Row) -> None:
        name = name_of(row)
        database = self._stores[0]
        if any(team.name == name for team in list_teams(database, self._organization_id)):
            self._report.todo.append(f"team {name}: a team of this name exists; it and its keys were left as they are")
            self._left.add(str(row.get("team_id")))
            return
        team = create_team(*self._stores, self._organization_id, name, actor=OPERATOR)
        member_id, user_id = ids.new("member"), ids.new("user")
        commit(
            *self._stores,
            lambda now: members.insert(
                (member_id, user_id), self._organization_id, f"Keys of {name}", actor=OPERATOR, now=now
            ),
        )
        set_team_member(*self._stores, team.id, member_id, True, actor=OPERATOR)
        management = self._services.management
        limits = limits_of(row)
        if limits != Limits():
            management.set_team_limits(team, lambda before: limits, actor=OPERATOR)
        project_id = self._project(name)
        self._allow("team", team.id, row)
        self._limit_rates(("project", project_id), row)
        self._places[str(row.get("team_id"))] = (project_id, member_id)

    def _add_key(self, row: Row) -> IssuedKey | None:
        name = name_of(row)
        if str(row.get("team_id") or "") in self._left:
            return None
        place = self._places.get(str(row.get("team_id") or ""))
        if place is None:
            place = self._project(PROJECT), self._owner()
        project_id, member_id = place
        database = self._stores[0]
        if any(key.description == name and key.project_id == project_id for key in keys.list_keys(database)):
            self._report.todo.append(f"key {name}: a key of this name exists; it was left as it is")
            return None
        management = self._services.management
        draft = keys.Draft(project_id, member_id, name, expires_at_us=_expiry(row))
        made = management.create_key(draft, limits_of(row), actor=OPERATOR)
        self._allow("key", made.info.id, row)
        self._limit_rates(("key", made.info.id), row)
        if row.get("blocked"):
            management.update_key(made.info, keys.Change(action="deactivate"), actor=OPERATOR)
        return IssuedKey(name, str(row.get("key_name") or ""), made.info.id, made.token)

    def _project(self, name: str) -> str:
        known = list_projects(self._stores[0], [self._organization_id])
        for project in known:
            if project.name == name:
                return project.id
        management = self._services.management
        return management.create_project(self._organization_id, name, "", actor=OPERATOR).id

    def _owner(self) -> str:
        for member in list_members(self._stores[0], self._organization_id):
            if member.role == "owner" and member.status == "active":
                return member.id
        raise InvalidRequest("The organization has no active owner who could own the keys.")

    def _allow(self, scope: Any, scope_id: str, row: Row) -> None:
        """Restrict a team or key to its models. A name that means nothing here stays in the rule: without it, the rule
        would allow more than before."""
        models = models_of(row)
        catalogue = self._services.routing.catalogue.current()
        allowed = []
        for name in models:
            if "*" in name:
                continue
            known = catalogue.find(self._names.get(name) or name)
            if known is None:
                self._report.todo.append(f"{name_of(row)}: it may call {name}, which is not in the catalogue yet")
            allowed.append(name if known is None else known.id)
        if allowed:
            value = {"models": list(dict.fromkeys(allowed))}
            add_rule(*self._stores, scope, scope_id, "allow_models", value, actor=OPERATOR)
        elif models:
            prefixes = dict.fromkeys(name.partition("/")[0] for name in models)
            # The name of a provider that does not exist here allows nothing.
            value = {"providers": [self._providers.get(prefix) or prefix for prefix in prefixes]}
            add_rule(*self._stores, scope, scope_id, "allow_providers", value, actor=OPERATOR)

    def _limit_rates(self, place: tuple[str, str], row: Row) -> None:
        amounts = {kind: count for member, kind in RATES.items() if (count := _count(row.get(member)))}
        if amounts:
            limits = self._services.billing.rate_limits
            operator_rates.change_account_rates(
                *self._stores, limits, place, self._organization_id, amounts, actor=OPERATOR
            )


def _expiry(row: Row) -> int | None:
    text = str(row.get("expires") or "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
REPORT, SETTINGS, TOKENS = "report.md", "gateway.toml", "keys.csv"
HEADER = ("name", "former key", "id", "key")


@click.command("litellm")
@AS_JSON
@click.option("--keys", "keys_file", type=FILE, help="The answer of GET /key/list?return_full_object=true.")
@click.option("--teams", "teams_file", type=FILE, help="The answer of GET /team/list.")
@click.option("--budgets", "budgets_file", type=FILE, help="The answer of GET /budget/list.")
@click.option("--output", type=FOLDER, default="litellm-migration", show_default=True, help="Where to write the files.")
@click.option("--organization", default="", help="The organization of keys and teams; default: the only one.")
@click.option("--apply", is_flag=True, help="Make teams and keys. Without it nothing is changed here.")
@click.argument("config", type=FILE)
def litellm(
    config: Path,
    keys_file: Path | None,
    teams_file: Path | None,
    budgets_file: Path | None,
    output: Path,
    organization: str,
    apply: bool,
) -> None:
    """Read CONFIG, LiteLLM's config.yaml, and exports of its management API.

    Writes a part of gateway.toml with providers, models and aliases, and a report, into the folder of --output. With
    --apply it makes the teams and keys and writes the new keys into keys.csv there.
    """
    report = MigrationReport()
    content = read_config(config)
    rows = read_rows(keys_file, "keys"), read_rows(teams_file, "teams"), read_rows(budgets_file, "budgets")
    with opened() as installation:
        models = ModelMigration(installation.catalogue, report).read(content)
        accounts = plan_accounts(*rows, report, installation.clock.now_us())
        issued: list[IssuedKey] = []
        if apply and (accounts.keys or accounts.teams):
            check_scope(installation, organization)
            known = [(info.id, info.name) for info in list_organizations(installation.database)]
            chosen = organization or only_one("organization", known)
            if (output / TOKENS).exists():
                raise Conflict(f"{output / TOKENS} exists already; move it away, since it holds keys.")
            issued = AccountMigration(installation.services, chosen, models.names, report).apply(accounts)
    _write_files(output, models, issued, report)
    _show(output, models, accounts, issued, report, apply)


def _write_files(output: Path, models: ModelPlan, issued: list[IssuedKey], report: MigrationReport) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / REPORT).write_text(report.write())
    _write_private(output / SETTINGS, write_toml(models))
    for name, secret in models.secrets.items():
        _write_private(output / name, secret)
    if issued:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(HEADER)
        rows = ((key.name, key.before, key.key_id, key.token) for key in issued)
        writer.writerows(map(write_cell, row) for row in rows)
        _write_private(output / TOKENS, table.getvalue())


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _show(
    output: Path,
    models: ModelPlan,
    accounts: AccountPlan,
    issued: list[IssuedKey],
    report: MigrationReport,
    applied: bool,
) -> None:
    sections = report.sections()
    if is_json():
        print_json({**sections, "aliases": models.aliases, "keyIds": [key.key_id for key in issued]})
        return
    click.echo(printable(report.write()))
    click.echo(f"{output / SETTINGS}: providers, models and aliases, to be merged into your gateway.toml")
    click.echo(f"{output / REPORT}: this report")
    if issued:
        click.echo(f"{output / TOKENS}: {len(issued)} new keys; they are stored nowhere else")
    elif not applied and (accounts.keys or accounts.teams):
        click.echo("Nothing was changed; --apply makes the teams and keys.")
