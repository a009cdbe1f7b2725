"""Purge deleted keys that were never used. Used API keys are kept, because reports refer to them."""

from collections.abc import Sequence
from functools import partial

from gateway.callers.models import AccessRule, ApiKey
from gateway.clock import DAY_US
from gateway.limits.models import KEY, TOTAL, WINDOW, budget_id
from gateway.limits.owned_rows import forget_owner
from gateway.limits.rate_rules import OF_ACCOUNTS
from gateway.metering.rollups.rollup_table import Series, read_state
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 200
# Steps of a run; the next run continues where it ended.
ROUND_STEPS = 400
PAUSE_S = 0.02
# Rows that refer to a key: rollups and entries of the request log.
REFERENCES = (
    f"SELECT 1 FROM rollup WHERE series = {int(Series.KEY)} AND owner = ? LIMIT 1",
    "SELECT 1 FROM log_entry WHERE api_key = ? LIMIT 1",
)
HAS_SPENDING = "SELECT 1 FROM budget WHERE id IN (?, ?) AND (settled_nusd <> 0 OR leased_nusd <> 0)"
# Only budgets refer to provider keys.
PROVIDER_KEYS = """SELECT id FROM provider_key WHERE status = 'deleted' AND updated_at < ? AND id NOT IN (
SELECT scope_id FROM budget WHERE scope = 'provider_key' AND (settled_nusd <> 0 OR leased_nusd <> 0)) LIMIT ?"""
LEASED = "SELECT 1 FROM lease WHERE budget IN (?, ?)"


class DeletedKeys:
    """Purges keys without references `days` after their deletion; 0: never."""

    def __init__(self, database: Database, days: int) -> None:
        self._database = database
        self._days = days
        self._after = ""

    def purge(self, should_continue: ShouldContinue = always) -> int:
        """Run once and return the number of purged keys. Safe to repeat. Raises Unavailable."""
        if not self._days or not self._database.read(self._rollups_are_complete):
            return 0
        over = self._database.now_us() - self._days * DAY_US
        gone = 0
        for _ in range(ROUND_STEPS):
            count = self._database.write(partial(self._forget_provider_keys, over)) if should_continue() else 0
            gone += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        for _ in range(ROUND_STEPS):
            page = self._database.read(partial(self._find, over)) if should_continue() else ()
            if page:
                gone += self._database.write(lambda: sum(self._forget(key_id) for key_id in page))  # noqa: B023
            if len(page) == STEP_ROWS:
                self._after = page[-1]
            else:
                self._after = ""
            if not self._after:
                break
            pause(PAUSE_S)
        return gone

    def _rollups_are_complete(self) -> bool:
        """Return whether the rollups include all usage."""
        state = read_state(self._database)
        return state is not None and state.filled is None

    def _find(self, over: int) -> Sequence[str]:
        old = (ApiKey.status == "deleted") & (ApiKey.updated_at < over) & (ApiKey.id > self._after)
        return [row.id for row in ApiKey.select(ApiKey.id).where(old).order_by(ApiKey.id).limit(STEP_ROWS)]

    def _forget_provider_keys(self, over: int) -> int:
        rows = self._database.execute(PROVIDER_KEYS, (over, STEP_ROWS)).fetchall()
        for (key_id,) in rows:
            forget_owner(self._database, key_id)
            self._database.execute("DELETE FROM budget WHERE id = ?", (budget_id(key_id, TOTAL),))
            self._database.execute("DELETE FROM provider_key WHERE id = ?", (key_id,))
        return len(rows)

    def _forget(self, key_id: str) -> bool:
        """Delete a key with its rules and counters unless it was used. Return whether it was deleted."""
        execute = self._database.execute
        raw = bytes.fromhex(key_id.partition("_")[2])
        budgets = (budget_id(key_id, TOTAL), budget_id(key_id, WINDOW))
        if any(execute(sql, (raw,)).fetchone() for sql in REFERENCES):
            return False
        if any(execute(sql, budgets).fetchone() for sql in (HAS_SPENDING, LEASED)):
            return False
        execute("DELETE FROM budget WHERE id IN (?, ?)", budgets)
        forget_owner(self._database, key_id)
        execute("DELETE FROM limit_setter WHERE scope_id = ?", (key_id,))
        execute("DELETE FROM session_budget WHERE scope_id = ?", (key_id,))
        execute("DELETE FROM rate_limit WHERE scope IN (?, ?) AND scope_id = ?", (KEY, OF_ACCOUNTS[KEY], key_id))
        AccessRule.delete().where(AccessRule.scope == KEY, AccessRule.scope_id == key_id).execute()
        ApiKey.delete().where(ApiKey.id == key_id).execute()
        return True
