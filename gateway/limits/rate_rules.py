"""The configured rate limits: the operator's, and lower ones that accounts set for themselves."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Database

REQUESTS = "requests"
TOKENS = "tokens"
CONCURRENCY = "concurrency"
KINDS = (REQUESTS, TOKENS, CONCURRENCY)
OPERATION = "operation"  # of each organization, or of the organization in a subject "organization/operation"
SCOPES = ("organization", "project", "key", "model", OPERATION)
EACH_SUBJECT = "*"
# Scopes in which an account sets its own limits → the scope of their rows.
OF_ACCOUNTS = {"project": "account_project", "key": "account_key"}
NAMES = {REQUESTS: "requests per minute", TOKENS: "tokens per minute", CONCURRENCY: "requests at once"}


class Rule(NamedTuple):
    """A limit of `amount` of `kind` for a subject of `scope`; 0 blocks it."""

    scope: str
    subject: str
    kind: str
    amount: int


class SetRate(NamedTuple):
    """The limit of one kind as set by the operator and by the account; None: not set."""

    operators: int | None
    own: int | None

    @property
    def in_force(self) -> int | None:
        """The lower of the two."""
        return min((amount for amount in self if amount is not None), default=None)


class RateLimits:
    """The operator's limits and the lower ones set by accounts: rows of a table, cached under the control version."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._version = -1
        self._rules: dict[tuple[str, str], dict[str, int]] = {}

    def write_limit(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        """Set a limit, or remove it with None, within an open transaction; the caller announces the change. The
        subject "*" is each subject of the scope. InvalidRequest."""
        if scope not in SCOPES or kind not in KINDS:
            raise InvalidRequest(f"A rate limit has a scope ({', '.join(SCOPES)}) and a kind ({', '.join(KINDS)}).")
        if amount is not None and amount < 0:
            raise InvalidRequest("A rate limit cannot be negative; use 0 to block all requests.")
        self._control.bump()
        self._replace(scope, subject, kind, amount)

    def write_own(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        """Set or remove an account's limit on its own project or key within an open transaction; the caller announces
        the change. InvalidRequest (rate_limit_above_operators) above the operator's limit."""
        maximum = self._read_of(scope, subject)[kind].operators
        if amount is not None and maximum is not None and amount > maximum:
            raise InvalidRequest(
                f"The operator limits this {scope} to {maximum} {NAMES[kind]}; choose a value up to that.",
                param=kind,
                code="rate_limit_above_operators",
            )
        self._control.bump()
        self._replace(OF_ACCOUNTS[scope], subject, kind, amount)

    def of(self, scope: str, subject: str) -> dict[str, "SetRate"]:
        """The limits of a project or key by kind, read from the store."""
        return self._database.read(partial(self._read_of, scope, subject))

    def _read_of(self, scope: str, subject: str) -> dict[str, "SetRate"]:
        sql = "SELECT scope, scope_id, kind, amount FROM rate_limit WHERE scope IN (?, ?) AND scope_id IN (?, ?)"
        params = (scope, OF_ACCOUNTS[scope], subject, EACH_SUBJECT)
        rows = self._database.execute(sql, params).fetchall()
        amounts = {(row_scope, ident, kind): amount for row_scope, ident, kind, amount in rows}
        return {
            kind: SetRate(
                amounts.get((scope, subject, kind), amounts.get((scope, EACH_SUBJECT, kind))),
                amounts.get((OF_ACCOUNTS[scope], subject, kind)),
            )
            for kind in KINDS
        }

    def _replace(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        run = self._database.execute
        run("DELETE FROM rate_limit WHERE scope = ? AND scope_id = ? AND kind = ?", (scope, subject, kind))
        if amount is not None:
            sql = "INSERT INTO rate_limit (scope, scope_id, kind, amount) VALUES (?, ?, ?, ?)"
            run(sql, (scope, subject, kind, amount))

    def list_limits(self) -> list[Rule]:
        """Return all limits; those set by accounts have separate scopes."""
        return self._rows()

    def rules(self, subjects: Sequence[tuple[str, str]]) -> list[Rule]:
        """Return the limits that apply to (scope, subject) pairs: the subject's own amount, otherwise the amount for
        each subject of the scope."""
        if not self.active():
            return []
        table = self._rules
        rules = []
        for scope, subject in subjects:
            for kind in KINDS if subject else ():
                amounts = table.get((scope, kind))
                amount = _amount_of(scope, subject, amounts) if amounts else None
                if amount is not None:
                    rules.append(Rule(scope, subject, kind, amount))

        return rules

    def active(self) -> bool:
        """Return whether any limit exists."""
        return self.active_at(self._control.check())

    def active_at(self, version: int) -> bool:
        """Return whether any limit exists under a known control version."""
        if version != self._version:
            self._renew(version)
        return bool(self._rules)

    def worker_count(self) -> int:
        """Return the number of live workers, at least this one."""
        return max(1, len(self._control.live_epochs()))

    def _renew(self, version: int) -> None:
        table: dict[tuple[str, str], dict[str, int]] = {}
        for row in self._rows():
            table.setdefault((row.scope, row.kind), {})[row.subject] = row.amount
        for scope, own in OF_ACCOUNTS.items():
            for kind in KINDS:
                _lower(table, (scope, kind), table.pop((own, kind), {}))
        self._rules = table
        self._version = version

    def _rows(self) -> list[Rule]:
        sql = "SELECT scope, scope_id, kind, amount FROM rate_limit ORDER BY scope, scope_id"
        return [Rule(*row) for row in self._database.read(partial(self._database.fetch, sql))]


def _lower(table: dict[tuple[str, str], dict[str, int]], place: tuple[str, str], own: dict[str, int]) -> None:
    """Apply an account's own amounts where they are lower than the operator's, or where the operator set none."""
    if not own:
        return
    amounts = table.setdefault(place, {})
    each = amounts.get(EACH_SUBJECT)
    for subject, amount in own.items():
        maximum = amounts.get(subject, each)
        if maximum is None:
            amounts[subject] = amount
        else:
            amounts[subject] = min(amount, maximum)


def _amount_of(scope: str, subject: str, amounts: dict[str, int]) -> int | None:
    amount = amounts.get(subject)
    if amount is None and scope == OPERATION:
        amount = amounts.get(subject.partition("/")[2])
    if amount is None:
        return amounts.get(EACH_SUBJECT)
    return amount
