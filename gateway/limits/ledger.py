"""The ledger of prepaid credits: append-only entries, each posted at most once, and the resulting balance."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import Internal, InvalidRequest
from gateway.limits.leases import MAX_COUNTER_NUSD, LeaseRequest, insert_budget, lock_budgets
from gateway.limits.models import CREDITS, ORGANIZATION, Ledger, budget_id
from gateway.money import MAX_SETTLED_NUSD
from gateway.store.database import Database

GRANT = "grant"
ADJUSTMENT = "adjustment"
USAGE = "usage"
STORAGE = "storage"
# Entries that change how much may be spent. Usage and storage are spending, which the budget counts as it settles.
LedgerKind = Literal["grant", "refund", "adjustment"]
FUNDING: tuple[str, ...] = get_args(LedgerKind)
# The prefix of references of adjustments that correct a closed hour.
LATE_PREFIX = "usage:"
MILLI_US = 1_000
AT_ONCE = 500  # organizations of one read
MAX_REF_LENGTH = 255  # width of the column


class Balance(Struct, frozen=True):
    """An organization's credits in nano-dollars: funded, spent, and reserved by running requests. For an `unlimited`
    organization they are only counted."""

    funded_nusd: int
    spent_nusd: int
    reserved_nusd: int
    unlimited: bool = False

    @property
    def balance_nusd(self) -> int:
        """Credits that may still be spent; for an unlimited organization, the most that a budget can count."""
        return (MAX_SETTLED_NUSD if self.unlimited else self.funded_nusd) - self.spent_nusd


class LedgerBook:
    """Posts entries, as part of an open transaction if there is one."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control

    def grant(self, organization_id: str, amount_nusd: int, ref: str) -> None:
        """Add credits, once for each `ref`."""
        self.post(organization_id, GRANT, amount_nusd, ref)

    def begin(self, organization_id: str, amount_nusd: int | None, ref: str) -> None:
        """Post the first credits of an organization; None: it is unlimited."""
        if amount_nusd is None:
            self.set_unlimited(organization_id, True)
        else:
            self.grant(organization_id, amount_nusd, ref)

    def set_unlimited(self, organization_id: str, unlimited: bool) -> None:
        """Let the organization spend without credits, or limit it to what was funded. Spending is counted either way.
        The caller announces the change."""
        self._database.write(partial(self._set_unlimited, organization_id, unlimited))

    def post(self, organization_id: str, kind: str, amount_nusd: int, ref: str, note: str = "") -> bool:
        """Append a funding entry (a negative amount takes credits away) and change the balance; return whether it was
        new. InvalidRequest for an amount out of range, or a reference that is too long."""
        if kind not in FUNDING:
            raise Internal(f"Entries of kind {kind} cannot be posted manually.")
        if ref.startswith(LATE_PREFIX):
            raise Internal(f"References that begin with {LATE_PREFIX} are reserved for the closing of hours.")
        if len(ref) > MAX_REF_LENGTH:
            raise InvalidRequest("This reference is too long; use a shorter one.", param="reference")
        return self._database.write(partial(self._post, organization_id, kind, amount_nusd, ref, note))

    def close_hour(self, organization_id: str, hour: str, spent_nusd: int, storage_nusd: int = 0) -> int:
        """Post what an organization spent of its credits in an hour ("2026-01-31T14"): one entry for inference, one for
        the storage of payloads, and an adjustment for rows that arrived later. Return the nano-dollars posted, 0 if
        nothing is new."""
        amounts = {USAGE: spent_nusd, STORAGE: storage_nusd}
        return self._database.write(partial(self._close_hour, organization_id, hour, amounts))

    def balance(self, organization_id: str) -> Balance:
        """Return the current balance: settlements count as soon as they are durable."""
        return self._database.read(partial(self._balance, organization_id))

    def balances(self, organization_ids: Sequence[str]) -> dict[str, Balance]:
        """Return the current balances of many organizations by id, with few reads."""
        found: dict[str, Balance] = {}
        for start in range(0, len(organization_ids), AT_ONCE):
            part = organization_ids[start : start + AT_ONCE]
            found |= self._database.read(partial(self._balances, part))
        return found

    def entries(self, organization_id: str, limit: int = 100, before_us: int | None = None) -> list[Ledger]:
        """Return the newest entries first: `limit` of them, plus all others in the millisecond of the last one. Times
        are shown in milliseconds, so a page that begins before that millisecond misses none."""
        newest = Ledger.select().where(Ledger.organization == organization_id)
        newest = newest.order_by(Ledger.at.desc(), Ledger.id.desc())
        if before_us is not None:
            newest = newest.where(Ledger.at < before_us)

        def read() -> list[Ledger]:
            entries = list(newest.limit(limit))
            if len(entries) < limit:
                return entries
            last = entries[-1].at // MILLI_US * MILLI_US
            known = {entry.id for entry in entries}
            same_millisecond = newest.where((Ledger.at >= last) & (Ledger.at < last + MILLI_US))
            return entries + [entry for entry in same_millisecond if entry.id not in known]

        return self._database.read(read)

    def _balance(self, organization_id: str) -> Balance:
        return self._balances([organization_id])[organization_id]

    def _balances(self, organization_ids: Sequence[str]) -> dict[str, Balance]:
        counters = _counters(self._database, [budget_id(ident, CREDITS) for ident in organization_ids])
        balances: dict[str, Balance] = {}
        unlimited: list[str] = []
        for ident in organization_ids:
            limit_nusd, spent_nusd, reserved_nusd = counters.get(budget_id(ident, CREDITS), (0, 0, 0))
            if limit_nusd is None:
                unlimited.append(ident)
            balances[ident] = Balance(limit_nusd or 0, spent_nusd, reserved_nusd, limit_nusd is None)
        funded = self._funded(unlimited) if unlimited else {}
        return {ident: replace(one, funded_nusd=funded.get(ident, one.funded_nusd)) for ident, one in balances.items()}

    def _set_unlimited(self, organization_id: str, unlimited: bool) -> None:
        self._control.bump()  # before any budget is locked: the lock order of every change
        # An unlimited organization has no limit, like any other budget; the ledger keeps the postings.
        hold = LeaseRequest(budget_id(organization_id, CREDITS), ORGANIZATION, organization_id, CREDITS)
        insert_budget(self._database, hold, 0)
        limit_nusd = None if unlimited else self._funded([organization_id])[organization_id]
        self._database.execute("UPDATE budget SET limit_nusd = ? WHERE id = ?", (limit_nusd, hold.budget))

    def _funded(self, organization_ids: Sequence[str]) -> dict[str, int]:
        marks = ", ".join("?" * len(organization_ids))
        sql = (
            f"SELECT organization, SUM(amount_nusd) FROM ledger WHERE organization IN ({marks}) "
            "AND kind IN (?, ?, ?) AND NOT (kind = ? AND ref LIKE ?) GROUP BY organization"
        )
        params = (*organization_ids, *FUNDING, ADJUSTMENT, f"{LATE_PREFIX}%")
        return dict.fromkeys(organization_ids, 0) | {
            str(ident): int(nusd) for ident, nusd in self._database.execute(sql, params).fetchall()
        }

    def _post(self, organization_id: str, kind: str, amount_nusd: int, ref: str, note: str) -> bool:
        if amount_nusd < 0:
            self._control.bump()  # Workers return what they hold beyond the new balance.
        if not self._insert(organization_id, kind, amount_nusd, ref, note):
            return False
        hold = LeaseRequest(budget_id(organization_id, CREDITS), ORGANIZATION, organization_id, CREDITS)
        insert_budget(self._database, hold, 0)
        known_nusd = lock_budgets(self._database, (hold.budget,))[hold.budget].limit_nusd
        funded_nusd = (
            self._funded([organization_id])[organization_id] if known_nusd is None else known_nusd + amount_nusd
        )
        if abs(funded_nusd) > MAX_COUNTER_NUSD:
            raise InvalidRequest("The balance would be too large to count; make the organization unlimited instead.")
        self._database.execute("UPDATE budget SET limit_nusd = limit_nusd + ? WHERE id = ?", (amount_nusd, hold.budget))
        return True

    def _insert(self, organization_id: str, kind: str, amount_nusd: int, ref: str, note: str) -> bool:
        sql = (
            "INSERT INTO ledger (id, organization, kind, amount_nusd, ref, at, note) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (kind, ref) DO NOTHING"
        )
        values = (ids.new("ledger"), organization_id, kind, amount_nusd, ref, self._database.now_us(), note[:255])
        return self._database.execute(sql, values).rowcount > 0

    def _close_hour(self, organization_id: str, hour: str, amounts: dict[str, int]) -> int:
        # Nothing is posted for an hour before it begins. The time condition avoids reading years of entries.
        sql = (
            "SELECT count(*), COALESCE(SUM(amount_nusd), 0) FROM ledger WHERE organization = ? AND at >= ? "
            "AND ((kind IN (?, ?) AND ref = ?) OR (kind = ? AND ref LIKE ?))"
        )
        ref = f"{organization_id}:{hour}"
        late = f"{LATE_PREFIX}{ref}:"
        start = datetime.fromisoformat(f"{hour}:00+00:00")
        start_us = int(start.timestamp()) * SECOND_US
        params = (organization_id, start_us, USAGE, STORAGE, ref, ADJUSTMENT, f"{late}%")
        count, posted = self._database.execute(sql, params).fetchone()
        missing = sum(amounts.values()) + int(posted)
        if missing and count:
            self._insert(organization_id, ADJUSTMENT, -missing, f"{late}{count}", "late usage of a closed hour")
        elif missing:
            for kind, nusd in amounts.items():
                if nusd:
                    self._insert(organization_id, kind, -nusd, ref, "")
        return missing


def _counters(database: Database, budgets: Sequence[str]) -> dict[str, tuple[int | None, int, int]]:
    """Return the limits (None: none), settled and reserved amounts of budgets by id, including spending of their leases
    that was not folded yet."""
    marks = ", ".join("?" * len(budgets))
    sql = (
        "SELECT b.id, b.limit_nusd, b.settled_nusd + COALESCE(SUM(l.spent_nusd), 0), "
        "b.leased_nusd - COALESCE(SUM(CASE WHEN l.spent_nusd < l.granted_nusd THEN l.spent_nusd "
        "ELSE l.granted_nusd END), 0) FROM budget b "
        "LEFT JOIN lease l ON l.budget = b.id AND l.generation = b.generation "
        f"WHERE b.id IN ({marks}) GROUP BY b.id, b.limit_nusd, b.settled_nusd, b.leased_nusd"
    )
    rows = database.execute(sql, budgets).fetchall()
    return {str(ident): (limit, int(settled), int(reserved)) for ident, limit, settled, reserved in rows}
