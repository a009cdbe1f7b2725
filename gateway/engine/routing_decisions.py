"""Stores the routing decision of each request for some days, so that it can be explained."""

from hashlib import blake2b
from typing import NamedTuple, NotRequired, TypedDict

import orjson

from gateway.clock import Clock
from gateway.errors import NotFound, Unavailable
from gateway.metering.models import CACHED
from gateway.metering.route_usage import JUDGED, REFERENCE, ROUTE, RULE, VERSION
from gateway.metering.usage_table import UsageRecord, find, raw_id
from gateway.routes.choices import JudgeAnswer, RouteChoiceAnswer
from gateway.routing.decision import Plan
from gateway.routing.record import Packed, RoutingDecision, leave_out_figures, pack, unpack
from gateway.runtime.allowances import Allowances
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store import partitions
from gateway.store.database import Database
from gateway.store.journal import Journal, Statement
from gateway.store.partitions import AgingTables

OK = range(200, 300)
CACHE_SIZE = 64
# Decisions of requests that were refused by the limits of their targets, of a project and of all in one worker: a
# burst, then a rate per second.
REFUSED = (30, 0.5, 300, 5.0)
FIND_DECISION = (
    "SELECT project, record FROM decision WHERE request = COALESCE("
    "(SELECT decision FROM usage WHERE request = ? AND decision IS NOT NULL LIMIT 1), ?)"
)
UNKNOWN = (None, b"")  # no plan, and no request
NEVER = (b"", float("-inf"))
# Requests share a stored decision for this long if their decisions differ in nothing but measured figures.
SHARED_S = 60.0
SHARED_SIZE = 512
DIGEST_BYTES = 16
RECORD = Statement(
    "decision", "INSERT INTO decision (request, project, record) VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING"
)


class StoredDecision(NamedTuple):
    """The decision of a request; `project` is a raw id."""

    project: bytes
    record: RoutingDecision


class AttemptRecord(TypedDict):
    """An upstream call of a past request."""

    provider: str
    model: str
    status_code: int
    error: str
    succeeded: bool
    duration_ms: int | None
    cached: NotRequired[bool]
    region: NotRequired[str]


class DecisionWithAttempts(RoutingDecision):
    attempts: list[AttemptRecord]


class Decisions:
    """The stored decisions: kept for `keep_days` days (0: not stored), written in the group commits of usage rows."""

    def __init__(self, database: Database, journal: Journal, clock: Clock, keep_days: int) -> None:
        self._database = database
        self._journal = journal
        self._clock = clock
        self._keep_days = keep_days
        self._tables = AgingTables(database, {"decision": ("request",)}, keep_days, self._delete)
        # The last plans, each with the request that stored it (see engine/plan_cache.py).
        self._stored: dict[int, tuple[Plan, bytes]] = {}
        # The last decisions by project and outcome, each with the request that stored it and when (monotonic).
        self._shared: dict[bytes, tuple[bytes, float]] = {}
        self._refused = Allowances(*REFUSED, clock.monotonic)

    def keep(self, request: bytes, project: bytes, plan: Plan) -> bytes | None:
        """Record the plan of a request; ids are raw. Return the earlier request that stored the same plan, or a recent
        one with the same outcome; None if this one stored it.

        Never waits and never fails, since the accounts do not depend on an explanation.
        """
        if not self._keep_days:
            return None
        known, stored = self._stored.get(id(plan), UNKNOWN)
        if known is plan:
            return stored
        packed = pack(plan)
        outcome = blake2b(project + orjson.dumps(leave_out_figures(packed)), digest_size=DIGEST_BYTES).digest()
        now = self._clock.monotonic()
        stored, since = self._shared.get(outcome, NEVER)
        shared = now - since < SHARED_S
        if not shared:
            if not self._write(request, project, packed):
                return None
            stored = request
            if len(self._shared) >= SHARED_SIZE:
                self._shared.clear()
            self._shared[outcome] = stored, now
        if len(self._stored) >= CACHE_SIZE:
            self._stored.clear()
        self._stored[id(plan)] = plan, stored
        return stored if shared else None

    def keep_refused(self, request: bytes, project: bytes, plan: Plan) -> None:
        """Record the plan of a request that no target may serve; beyond REFUSED nothing is recorded. Nothing is shared,
        because such a request has no usage row that could name another one."""
        if self._keep_days and self._refused.take(project):
            self._write(request, project, pack(plan))

    def _write(self, request: bytes, project: bytes, packed: Packed) -> bool:
        """Return whether the journal takes a decision."""
        try:
            self._journal.append((RECORD, (request, project, orjson.dumps(packed))))
        except Unavailable:
            return False
        return True

    def find(self, project_id: str, request_id: str, *, key_id: str = "", member_id: str = "") -> DecisionWithAttempts:
        """Return the decision of a request of the project, with `attempts`.

        With `key_id` or `member_id` only for their own requests. NotFound for another project's, an unknown and an
        expired request alike; Unavailable.
        """
        missing = NotFound(
            "There is no routing decision under this id in this project; they are kept for "
            f"{self._keep_days} days and begin with the provider's first call."
        )
        try:
            request = bytes.fromhex(request_id)
        except ValueError:
            raise missing from None
        decision = read_decision(self._database, request)
        if decision is None or decision.project != raw_id(project_id):
            raise missing
        attempts = find(self._database, request_id)
        # Without an attempt there is no row with the owner of the request.
        owners = (attempts[0].api_key, attempts[0].member) if attempts else (b"", b"")
        for owner, ident in zip(owners, (key_id, member_id), strict=True):
            if ident and owner != raw_id(ident):
                raise missing
        found: DecisionWithAttempts = {
            **decision.record,
            "attempts": [_write_attempt(record) for record in attempts],
        }
        route = next((details for record in attempts if ROUTE in (details := record.details)), None)
        if route is not None:
            # The stored decision may belong to another request with the same outcome; the row belongs to this one.
            found["requestedModel"] = attempts[0].asked
            found["route"] = RouteChoiceAnswer(
                name=route[ROUTE], version=route[VERSION], rule=route[RULE], reference=route[REFERENCE]
            )
            if JUDGED in route:
                model, outcome, question = route[JUDGED]
                found["route"]["judge"] = JudgeAnswer(model=model, outcome=outcome, requestId=question)
        return found

    def purge(self, should_continue: ShouldContinue = always) -> int:
        """Delete decisions older than the retention period and return how many, in small steps while
        `should_continue()`, or in whole partitions. Idempotent."""
        return self._tables.purge(self._clock.now_us(), should_continue)

    def _delete(self, oldest: bytes) -> int:
        # Ids begin with their creation time in milliseconds (RFC 9562, version 7), so they sort by time.
        sql = (
            "DELETE FROM decision WHERE request IN (SELECT request FROM decision "
            f"WHERE request < ? ORDER BY request LIMIT {partitions.DELETED_ROWS_PER_STEP})"
        )
        return self._database.execute(sql, (oldest,)).rowcount


def read_decision(database: Database, request: bytes) -> StoredDecision | None:
    """Return the stored decision of a request, None for an unknown or expired one. Unavailable."""
    row = database.query_row(FIND_DECISION, (request, request))
    if row is None:
        return None
    try:
        return StoredDecision(bytes(row[0]), unpack(orjson.loads(bytes(row[1]))))
    except ValueError:
        return None


def _write_attempt(record: UsageRecord) -> AttemptRecord:
    region = record.details.get("region")
    shown: AttemptRecord = {
        "provider": record.provider,
        "model": record.served,
        "status_code": record.status,
        "error": record.error or "none",
        "succeeded": record.status in OK and record.error is None,
        "duration_ms": record.duration_ms,
    }
    if record.flags & CACHED:
        shown["cached"] = True
    if region:
        shown["region"] = region
    return shown
