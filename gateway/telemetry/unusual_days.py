"""Warnings about keys, people and sessions that spend unusually much on a day, compared with their own past; and the
hold of such a key at its usual amount.

The past of a key or person are its days with usage in the last weeks: those of the same weekday where there are enough,
else all. A day is unusual beyond the median plus DEVIATIONS robust standard deviations (1.4826 times the median
absolute deviation), beyond TIMES the median, and beyond the installation's minimum. A session is compared with the
sessions of its project, because it seldom has a past of many days. Days are those of UTC.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from msgspec import msgpack

from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.spending_limits import SpendingLimits
from gateway.clock import DAY_US
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.limit_rules import REFUSE, LimitAction, Subject
from gateway.metering.rollups.rollup_table import DAILY, HOURS, OTHER, SESSION, Series
from gateway.metering.usage_table import raw_id
from gateway.money import NANO, round_usd
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents

EVENT = "usage.unusual"
BACK = "usage.usual"
ACTOR = "gateway"  # in the audit log; it has no role, so that everyone who sets limits may release a hold
HOLD_PREFIX = "unusual-"
HOLD_KIND = "unusual_hold"  # documents of the holds of a day, so that one that was released does not come back
HOLD_TTL_S = 2 * 86_400.0
KIND, KEY = "unusual_days", "found"  # the document with what the leading worker found last
TTL_S = 2 * 86_400.0
PAST_DAYS = 56
SAME_WEEKDAY = 4  # days of the same weekday that are enough
MIN_DAYS = 7
MIN_SESSIONS = 20
MAX_SESSIONS = 5_000  # of a project that are compared
WEEK = 7
DEVIATIONS = 6
NORMAL = 1.4826  # the standard deviation of a normal distribution by its median absolute deviation
TIMES = 3
AT_ONCE = 500  # keys, people or projects of one statement
PROJECTS_AT_ONCE = 20

KEYS_TODAY = (
    "SELECT owner, SUM(cost_nusd) FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour >= ? AND hour < ? "
    "GROUP BY owner HAVING SUM(cost_nusd) > 0"
)
PAST = (
    "SELECT owner, hour, SUM(cost_nusd) FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour >= ? "
    "AND hour < ? GROUP BY owner, hour HAVING SUM(cost_nusd) > 0"
)
SESSIONS_TODAY = (
    "SELECT owner, name, SUM(cost_nusd) FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour >= ? "
    "AND hour < ? AND provider = ? GROUP BY owner, name HAVING SUM(cost_nusd) >= ? ORDER BY 3 DESC"
)
SESSIONS_PAST = (
    "SELECT owner, nusd FROM (SELECT owner, SUM(cost_nusd) AS nusd, "
    "ROW_NUMBER() OVER (PARTITION BY owner ORDER BY hour DESC, name) AS place FROM rollup WHERE series = ? "
    "AND owner IN ({marks}) AND hour >= ? AND hour < ? AND provider = ? AND name <> ? "
    "GROUP BY owner, hour, name HAVING SUM(cost_nusd) > 0) AS sums WHERE place <= ?"
)
OWNERS = (
    "SELECT k.id, k.member_id, k.project_id, p.organization_id, o.hold_unusual FROM api_key k "
    "JOIN project p ON p.id = k.project_id JOIN organization o ON o.id = p.organization_id"
)
OWNED = "SELECT id, member_id FROM api_key WHERE member_id IN ({marks})"
PROJECTS = "SELECT id, organization_id FROM project"


class UsualDay(NamedTuple):
    """The median of past days, and the amount from which a day is unusual."""

    usual_nusd: int
    threshold_nusd: int


class UnusualDay(NamedTuple):
    """A key, person or session whose day is unusual. `subject` identifies it and `name` shows it; `hold`: a key that is
    to be held."""

    kind: str
    ident: str
    organization_id: str
    project_id: str
    spent_nusd: int
    day: UsualDay
    hold: bool = False

    @property
    def subject(self) -> str:
        return f"unusual {self.kind} {self.project_id} {self.ident}"


class OwnedKey(NamedTuple):
    """A key with its member, project and organization; `holds`: the organization holds keys on unusual days."""

    key_id: str
    member_id: str
    project_id: str
    organization_id: str
    holds: bool


def judge(past: Sequence[tuple[int, int]], today: int, minimum_nusd: int) -> UsualDay | None:
    """Return what is usual by past days (day, nano-dollars); None if they are too few to tell."""
    same = [nusd for day, nusd in past if (today - day) % WEEK == 0]
    amounts = same if len(same) >= SAME_WEEKDAY else [nusd for _, nusd in past]
    if amounts is not same and len(amounts) < MIN_DAYS:
        return None
    return _judge_amounts(amounts, minimum_nusd)


def _judge_amounts(amounts: Sequence[int], minimum_nusd: int) -> UsualDay:
    usual = median(amounts)
    deviation = NORMAL * median(abs(amount - usual) for amount in amounts)
    return UsualDay(round(usual), max(round(usual + DEVIATIONS * deviation), round(TIMES * usual), minimum_nusd))


class UnusualWatch:
    """Compares the present day with the past. `scan` runs only in the leading worker. `minimum_nusd` 0: never."""

    def __init__(
        self, database: Database, control: Control, documents: Documents, states: StateLog, minimum_nusd: int
    ) -> None:
        self._database = database
        self._documents = documents
        self._states = states
        self._minimum_nusd = minimum_nusd
        self._limits = SpendingLimits(database, control)
        self._known: dict[str, UnusualDay] = {}

    def scan(self, should_continue: ShouldContinue = always) -> None:
        """Fire a state change for each unusual day that began, and resolve those that are over. Unavailable when the
        store is down."""
        if not self._minimum_nusd:
            return
        now_us = self._database.now_us()
        found = {one.subject: one for one in self._database.report(partial(self._find, now_us // DAY_US))}
        self._continue_scans()
        for subject, one in found.items():
            if not should_continue():
                return
            held = one.hold and self._hold(one, now_us // DAY_US)
            if subject not in self._known:
                self._states.fire(_unusual(one, held))
        for subject in self._known.keys() - found.keys():
            self._states.resolve(_usual(self._known[subject]))
        self._known = found
        self._documents.put(KIND, KEY, msgpack.encode(list(found.values())), TTL_S)

    def _continue_scans(self) -> None:
        """Take over what the leading worker found last, so that another leader does not report it again."""
        stored = self._documents.get(KIND, KEY)
        found = {one.subject: one for one in msgpack.decode(stored, type=list[UnusualDay])} if stored else {}
        if found != self._known:
            for one in found.values():
                self._states.adopt(_unusual(one, False))
            self._known = found

    def _find(self, today: int) -> list[UnusualDay]:
        """Return the unusual days; inside a report."""
        keys = self._keys_today(today)
        return [*self._unusual_keys(keys, today), *self._unusual_people(keys, today), *self._unusual_sessions(today)]

    def _keys_today(self, today: int) -> list[tuple[OwnedKey, int]]:
        """Return the keys that spent today. The sums of each key are found by its id: a range of hours alone would read
        those of all time."""
        hours = (today * HOURS, (today + 1) * HOURS)
        owned = {row[0]: OwnedKey(row[0], row[1], row[2], row[3], bool(row[4])) for row in self._database.fetch(OWNERS)}
        spent: list[tuple[OwnedKey, int]] = []
        for part in _parts(list(owned), AT_ONCE):
            params = (Series.KEY, *map(raw_id, part), *hours)
            for owner, nusd in self._database.fetch(KEYS_TODAY.format(marks=_marks(part)), params):
                spent.append((owned[f"key_{bytes(owner).hex()}"], int(nusd)))
        return spent

    def _fetch_in(self, sql: str, values: Iterable[str]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for part in _parts(list(values), AT_ONCE):
            found += self._database.fetch(sql.format(marks=_marks(part)), part)
        return found

    def _past(self, keys: Sequence[str], today: int) -> dict[str, list[tuple[int, int]]]:
        """Return the past days (day, nano-dollars) of keys by their ids."""
        hours = ((today - PAST_DAYS) * HOURS, today * HOURS)
        past: dict[str, list[tuple[int, int]]] = {key: [] for key in keys}
        for part in _parts(keys, AT_ONCE):
            params = (Series.KEY + DAILY, *map(raw_id, part), *hours)
            for owner, hour, nusd in self._database.fetch(PAST.format(marks=_marks(part)), params):
                past[f"key_{bytes(owner).hex()}"].append((int(hour) // HOURS, int(nusd)))
        return past

    def _unusual_keys(self, keys: Sequence[tuple[OwnedKey, int]], today: int) -> Iterable[UnusualDay]:
        large = [(key, nusd) for key, nusd in keys if nusd >= self._minimum_nusd]
        past = self._past([key.key_id for key, _ in large], today)
        for key, nusd in large:
            day = judge(past[key.key_id], today, self._minimum_nusd)
            if day is not None and nusd > day.threshold_nusd:
                yield UnusualDay("key", key.key_id, key.organization_id, key.project_id, nusd, day, key.holds)

    def _unusual_people(self, keys: Sequence[tuple[OwnedKey, int]], today: int) -> Iterable[UnusualDay]:
        """Yield people who use several keys; with one key, its own alert says the same."""
        people: dict[str, list[int]] = defaultdict(list)
        organizations: dict[str, str] = {}
        for key, nusd in keys:
            people[key.member_id].append(nusd)
            organizations[key.member_id] = key.organization_id
        large = {ident: sum(nusd) for ident, nusd in people.items() if len(nusd) > 1}
        large = {ident: total for ident, total in large.items() if total >= self._minimum_nusd}
        owners: dict[str, str] = dict(self._fetch_in(OWNED, large))
        days: dict[str, dict[int, int]] = {ident: defaultdict(int) for ident in large}
        for key_id, past in self._past(list(owners), today).items():
            for day, nusd in past:
                days[owners[key_id]][day] += nusd
        for ident, total in large.items():
            usual = judge(list(days[ident].items()), today, self._minimum_nusd)
            if usual is not None and total > usual.threshold_nusd:
                yield UnusualDay("person", ident, organizations[ident], "", total, usual)

    def _unusual_sessions(self, today: int) -> Iterable[UnusualDay]:
        hours = (today * HOURS, (today + 1) * HOURS)
        organizations: dict[str, str] = dict(self._database.fetch(PROJECTS))
        rows: list[tuple[str, str, int]] = []
        for part in _parts(list(organizations), AT_ONCE):
            params = (Series.PROJECT_TAG, *map(raw_id, part), *hours, SESSION, self._minimum_nusd)
            found = self._database.fetch(SESSIONS_TODAY.format(marks=_marks(part)), params)
            rows += [
                (f"proj_{bytes(owner).hex()}", str(name), int(nusd)) for owner, name, nusd in found if name != OTHER
            ]
        usual = self._usual_sessions(sorted({project_id for project_id, _, _ in rows}), today)
        for project_id, name, nusd in rows:
            day = usual.get(project_id)
            if day is not None and nusd > day.threshold_nusd:
                yield UnusualDay("session", name, organizations[project_id], project_id, nusd, day)

    def _usual_sessions(self, project_ids: Sequence[str], today: int) -> dict[str, UsualDay]:
        """Return what a day of a session usually costs in projects that had enough of them."""
        hours = ((today - PAST_DAYS) * HOURS, today * HOURS)
        amounts: dict[str, list[int]] = defaultdict(list)
        for part in _parts(project_ids, PROJECTS_AT_ONCE):
            params = (Series.PROJECT_TAG + DAILY, *map(raw_id, part), *hours, SESSION, OTHER, MAX_SESSIONS)
            for owner, nusd in self._database.fetch(SESSIONS_PAST.format(marks=_marks(part)), params):
                amounts[f"proj_{bytes(owner).hex()}"].append(int(nusd))
        return {
            project_id: _judge_amounts(past, self._minimum_nusd)
            for project_id, past in amounts.items()
            if len(past) >= MIN_SESSIONS
        }

    def _hold(self, one: UnusualDay, today: int) -> bool:
        """Limit a key to its usual amount a day, once a day; return whether it is held."""
        name = HOLD_PREFIX + one.ident
        if self._documents.put_if_absent(HOLD_KIND, f"{one.ident} {today}", b"", HOLD_TTL_S):
            draft = LimitDraft(
                (Subject("key", one.ident),),
                max(one.day.usual_nusd, min(self._minimum_nusd, NANO)),
                "1d",
                (LimitAction(100, REFUSE),),
            )
            try:
                self._limits.put(one.organization_id, name, draft, actor=ACTOR)
            except (InvalidRequest, NotFound):
                return False  # the key is gone, or the organization has as many limits as it may
        sql = "SELECT 1 FROM limits WHERE organization = ? AND name = ? AND deleted_at IS NULL"
        return self._database.query_row(sql, (one.organization_id, name)) is not None


def _parts(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


REMEDY = "see what it did in Explore and Requests; lower its limits, or deactivate the key"
RELEASE = "see what it did; then release it: delete the limit {}"


def _unusual(one: UnusualDay, held: bool) -> StateChange:
    facts = _facts(one) | {
        "spent_usd": round_usd(one.spent_nusd),
        "usual_usd": round_usd(one.day.usual_nusd),
        "unusual_from_usd": round_usd(one.day.threshold_nusd),
    }
    message = (
        f"{one.kind} {one.ident} has spent {round_usd(one.spent_nusd)} today; "
        f"{round_usd(one.day.usual_nusd)} a day are usual"
    )
    remedy = REMEDY
    if held:
        facts["limit"] = HOLD_PREFIX + one.ident
        message = f"{message}; it is held at its usual amount"
        remedy = RELEASE.format(HOLD_PREFIX + one.ident)
    return StateChange(EVENT, one.subject, message, remedy=remedy, facts=facts)


def _usual(one: UnusualDay) -> StateChange:
    message = f"the unusual day of {one.kind} {one.ident} is over"
    return StateChange(BACK, one.subject, message, INFO, facts=_facts(one))


def _facts(one: UnusualDay) -> dict[str, object]:
    facts = {"organization": one.organization_id, "project": one.project_id, _FACTS[one.kind]: one.ident}
    return {name: value for name, value in facts.items() if value}


_FACTS = {"key": "key", "person": "member", "session": "session"}
