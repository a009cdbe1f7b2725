"""Warnings about sessions of agents whose prompt cache hits collapse, with the cause, found in their usage rows.

An agent sends its whole conversation with each turn, so most of its input normally comes from the provider's prompt
cache. A turn without hits costs up to ten times as much.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct, field

from gateway.clock import DAY_US, MINUTE_US, SECOND_US, Clock
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.runtime.threads import give_way
from gateway.store.database import Database

# The turns of agents' sessions in the order in which they were recorded, for jobs that follow them.

COLUMNS = (
    "posted_at, request, at, organization, project, api_key, session, provider, served, input, cache_read, "
    "cache_write, input_nusd, cached_nusd, cache_write_nusd, flags"
)
LOSS = (
    "INSERT INTO cache_loss (request, project, api_key, session, cause, tokens, cost_nusd, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request) DO NOTHING"
)
FORGET_LOSSES = "DELETE FROM cache_loss WHERE at < ?"


class TurnPosition(NamedTuple):
    """A place in the order of recording: rows up to this one were read."""

    posted_at: int
    request: bytes = b""


class SessionTurn(NamedTuple):
    """An answered chat request of a session. Ids are prefixed; `fresh`, `cached` and `written` are its input tokens
    outside the provider's prompt cache, from it and into it, and `_nusd` what each cost."""

    request_id: str
    at_us: int
    organization_id: str
    project_id: str
    key_id: str
    session: str
    provider: str
    model: str
    fresh: int
    cached: int
    written: int
    fresh_nusd: int = 0
    cached_nusd: int = 0
    written_nusd: int = 0

    @property
    def input_tokens(self) -> int:
        return self.fresh + self.cached + self.written


class TurnPage(NamedTuple):
    """A page of turns. `position` is that of its last row; the last page is not `full`."""

    turns: list[SessionTurn]
    position: TurnPosition
    full: bool


def read_turns(database: Database, after: TurnPosition, until_us: int, limit: int) -> TurnPage:
    """Return at most `limit` turns that were recorded after a position and until `until_us`, oldest first. Answers
    from the gateway's cache and failed calls are left out. Raises Unavailable."""
    return database.report(partial(_read, database, after, until_us, limit))


def _read(database: Database, after: TurnPosition, until_us: int, limit: int) -> TurnPage:
    sql = (
        f"SELECT {COLUMNS} FROM usage WHERE posted_at >= ? AND posted_at <= ? AND (posted_at > ? OR request > ?) "
        "AND session IS NOT NULL AND operation = 'chat' AND kind = ? AND error IS NULL "
        "ORDER BY posted_at, request LIMIT ?"
    )
    values = (after.posted_at, until_us, after.posted_at, after.request, SETTLEMENT, limit)
    rows = list(database.fetch(sql, values))
    if not rows:
        return TurnPage([], after, False)
    position = TurnPosition(rows[-1][0], bytes(rows[-1][1]))
    return TurnPage([_turn(row) for row in rows if not row[15] & CACHED], position, len(rows) == limit)


def _turn(row: tuple[Any, ...]) -> SessionTurn:
    owners = (f"org_{bytes(row[3]).hex()}", f"proj_{bytes(row[4]).hex()}", f"key_{bytes(row[5]).hex()}")
    return SessionTurn(bytes(row[1]).hex(), row[2], *owners, *row[6:15])


EVENT = "session.cache_lost"
CACHE_BACK = "session.cache_back"
LOOK_BACK_US = 15 * MINUTE_US  # turns that a new leader reads
COMMIT_LAG_US = 5 * SECOND_US  # rows of other workers may be committed this much later than they are dated
PAGE = 500
PAGES = 40  # of one run; the next run continues
MAX_SESSIONS = 5_000
KEPT_TURNS = 40  # of each session
MIN_TURNS = 6
MIN_SESSION_US = 30 * SECOND_US  # many sub-agents begin at once: their first turns have no hits
LARGE_TOKENS = 2_000  # smaller prompts are not cached by most providers
MIN_HIT_PERCENT = 50
CACHE_LIFETIME_US = 5 * MINUTE_US
PROVIDER = "another provider"
MODEL = "another model"
PAUSES = "pauses longer than the cache lives"
PREFIX = "a changed beginning of the prompt"
REMEDIES = {
    PROVIDER: "see why with explain <request>; provider/model, or a session header, keeps a session at one provider",
    MODEL: "a cache belongs to one model: keep the model during a session",
    PAUSES: "ask for a longer cache lifetime if the provider has one",
    PREFIX: "compare two consecutive requests: tools, system prompt and earlier messages must stay exactly the same",
}


class CachingSession(Struct):
    """The latest large turns of a session, and the usual ones from before its hits collapsed."""

    turns: deque[SessionTurn] = field(default_factory=lambda: deque(maxlen=KEPT_TURNS))
    usual: list[SessionTurn] = field(default_factory=list)
    cause: str = ""


class CacheWatch:
    """Follows the turns of all sessions. `scan` runs only in the leading worker. A session is reported when its hits
    fall below `percent` of its input, after at least half of it came from the cache; 0: never."""

    def __init__(self, database: Database, states: StateLog, clock: Clock, percent: int) -> None:
        self._database = database
        self._states = states
        self._clock = clock
        self._percent = percent
        self._position: TurnPosition | None = None
        self._sessions: OrderedDict[tuple[str, str], CachingSession] = OrderedDict()

    def scan(self, should_continue: ShouldContinue = always) -> None:
        """Read the turns since the last run, and fire or resolve a state change for sessions that changed. Unavailable
        when the store is down."""
        if not self._percent:
            return
        until_us = self._clock.now_us() - COMMIT_LAG_US
        position = self._position or TurnPosition(until_us - LOOK_BACK_US)
        for _ in range(PAGES):
            page = read_turns(self._database, position, until_us, PAGE)
            self._position = position = page.position
            self._follow(page.turns)
            if not page.full or not should_continue():
                break
            give_way()

    def _follow(self, turns: Sequence[SessionTurn]) -> None:
        changed: dict[tuple[str, str], CachingSession] = {}
        losses: list[tuple[Any, ...]] = []
        for turn in turns:
            if turn.input_tokens >= LARGE_TOKENS:
                name = (turn.project_id, turn.session)
                session = changed[name] = self._sessions.setdefault(name, CachingSession())
                self._sessions.move_to_end(name)
                session.turns.append(turn)
                if session.usual:
                    losses += loss_of(session.usual, turn, session.cause)
        for session in changed.values():
            was_lost = bool(session.usual)
            self._judge(session)
            if session.usual and not was_lost:
                _, recent = split(list(session.turns))
                losses += [row for turn in recent for row in loss_of(session.usual, turn, session.cause)]
        if losses:
            self._database.write(partial(self._database.execute_many, LOSS, sorted(losses)))
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def _judge(self, session: CachingSession) -> None:
        usual, recent = split(list(session.turns))
        if not recent:
            return
        if session.usual:
            if hits_percent(recent) >= MIN_HIT_PERCENT:
                session.usual = []
                self._states.resolve(_restored(recent))
        elif self._is_lost(usual, recent):
            session.usual = usual
            session.cause = cause_of(usual, recent)
            self._states.fire(_lost(usual, recent))

    def _is_lost(self, usual: Sequence[SessionTurn], recent: Sequence[SessionTurn]) -> bool:
        had_hits = len(usual) >= MIN_TURNS and hits_percent(usual) >= MIN_HIT_PERCENT
        return had_hits and hits_percent(recent) < self._percent


def split(turns: list[SessionTurn]) -> tuple[list[SessionTurn], list[SessionTurn]]:
    """Return the turns before, and the recent ones: the fewest that are enough to judge; none if all are too few."""
    for start in range(len(turns) - MIN_TURNS, -1, -1):
        if turns[-1].at_us - turns[start].at_us >= MIN_SESSION_US:
            return turns[:start], turns[start:]
    return turns, []


def hits_percent(turns: Sequence[SessionTurn]) -> int:
    """Return the part of the input that came from the provider's cache."""
    total = sum(turn.input_tokens for turn in turns)
    return sum(turn.cached for turn in turns) * 100 // total


def loss_of(usual: Sequence[SessionTurn], turn: SessionTurn, cause: str) -> list[tuple[Any, ...]]:
    """Return the row of a turn that cost more than with the hits that were usual; none if it did not. The tokens that
    missed are priced by what the turn paid for input outside the cache, less what a hit cost before."""
    missed = turn.input_tokens * hits_percent(usual) // 100 - turn.cached
    outside = turn.fresh + turn.written
    hits = sum(one.cached for one in usual)
    if missed <= 0 or not outside or not hits:
        return []
    paid = missed * (turn.fresh_nusd + turn.written_nusd) // outside
    more = paid - missed * sum(one.cached_nusd for one in usual) // hits
    if more <= 0:
        return []
    owners = (raw_id(turn.project_id), raw_id(turn.key_id))
    return [(bytes.fromhex(turn.request_id), *owners, turn.session, cause, missed, more, turn.at_us)]


def forget_losses(database: Database, kept_days: int) -> None:
    """Delete older rows, none with 0 days. Unavailable."""
    if kept_days:
        database.change_rows(FORGET_LOSSES, (database.now_us() - kept_days * DAY_US,))


def cause_of(usual: Sequence[SessionTurn], recent: Sequence[SessionTurn]) -> str:
    """Return why the recent turns have no hits."""
    for cause, read in ((PROVIDER, attrgetter("provider")), (MODEL, attrgetter("model"))):
        if _main(recent, read) != _main(usual, read) or (_mixes(recent, read) and not _mixes(usual, read)):
            return cause
    pauses = sorted(after.at_us - before.at_us for before, after in pairwise(recent))
    if pauses[len(pauses) // 2] >= CACHE_LIFETIME_US:
        return PAUSES
    return PREFIX


def _main(turns: Sequence[SessionTurn], read: Callable[[SessionTurn], str]) -> str:
    return Counter(map(read, turns)).most_common(1)[0][0]


def _mixes(turns: Sequence[SessionTurn], read: Callable[[SessionTurn], str]) -> bool:
    """Return whether a quarter of the turns or more are elsewhere than the others."""
    maximum = Counter(map(read, turns)).most_common(1)[0][1]
    return maximum <= len(turns) * 3 // 4


def _subject(turn: SessionTurn) -> str:
    return f"session {turn.project_id} {turn.session}"


def _lost(usual: Sequence[SessionTurn], recent: Sequence[SessionTurn]) -> StateChange:
    last = recent[-1]
    cause = cause_of(usual, recent)
    before = hits_percent(usual)
    now = hits_percent(recent)
    facts = _facts(last) | {
        "cause": cause,
        "hits_before_percent": before,
        "hits_percent": now,
        "provider_before": _main(usual, attrgetter("provider")),
        "provider": _main(recent, attrgetter("provider")),
        "model_before": _main(usual, attrgetter("model")),
        "model": _main(recent, attrgetter("model")),
        "request": last.request_id,
    }
    share = f"{now} % of the input comes from the prompt cache instead of {before} %"
    message = f"session {last.session}: {share}, because of {cause}"
    return StateChange(EVENT, _subject(last), message, remedy=REMEDIES[cause], facts=facts)


def _restored(recent: Sequence[SessionTurn]) -> StateChange:
    last = recent[-1]
    facts = _facts(last) | {"hits_percent": hits_percent(recent)}
    message = f"session {last.session}: the prompt cache has hits again"
    return StateChange(CACHE_BACK, _subject(last), message, INFO, facts=facts)


def _facts(turn: SessionTurn) -> dict[str, object]:
    return {
        "organization": turn.organization_id,
        "project": turn.project_id,
        "key": turn.key_id,
        "session": turn.session,
    }
