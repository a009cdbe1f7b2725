"""The limits of an organization: set, listed with what was used of them, and removed; each change is audited."""

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from msgspec import to_builtins
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import check_quota, commit
from gateway.accounts.limit_drafts import LimitDraft, check_subjects, checked
from gateway.clock import DAY_US, to_iso
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.budgets import pack_thresholds
from gateway.limits.limit_book import COLUMNS, OF_ANY_SUBJECT, rule_of
from gateway.limits.limit_members import insert_share
from gateway.limits.limit_rules import LimitRule
from gateway.limits.limit_states import MAX_SORTED, MemberState, read_single_states, read_states
from gateway.limits.models import LimitRequest, LimitRow
from gateway.limits.owned_limits import OwnedLimit, find_owned, list_owned
from gateway.limits.owned_rows import OwnedName, keep_actions, parse_owned, raise_terms
from gateway.limits.periods import read_period
from gateway.money import MAX_AMOUNT_NUSD, format_usd
from gateway.store.database import WHOLE as WHOLE_LIST
from gateway.store.database import Database, ListSlice

MAX_LIMITS = 200  # of an organization; each request is compared with all of them
MAX_REQUESTS = 200  # for more, that wait in an organization
MAX_REQUESTS_OF_PERSON = 10
FORECAST_US = 366 * DAY_US  # how far ahead an end is foreseen
MAX_SHOWN_MEMBERS = 100
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
OWN_REQUESTS = (
    f"At most {MAX_REQUESTS_OF_PERSON} of your requests for more may wait in an organization. Wait until one is "
    "answered or over, or ask again for one of the same limits, which replaces the earlier request."
)


class LimitInfo(NamedTuple):
    """A limit and its state: that of its one budget, or of its `members` (those that used most), `member_count` of
    which are counted. `owned` is its id if it belongs to a key, member, team, provider key or project, which is called
    `owner_name`."""

    rule: LimitRule
    organization_id: str
    raise_nusd: int
    raise_until_us: int | None
    member_count: int
    created_us: int
    members: tuple[MemberState, ...] = ()
    owned: OwnedName | None = None
    owner_name: str = ""

    def forecast_us(self, now: int) -> int | None:
        """Return when the budget that is used most reaches its limit at the rate of its window so far; None if it will
        not before the window ends."""
        state = self.state
        limit = self.rule.amount_nusd if state.limit_nusd is None else state.limit_nusd
        start = state.started_us or self.created_us
        if not state.used_nusd or now <= start:
            return None
        at = start + limit * (now - start) // state.used_nusd
        if (state.renews_us and at >= state.renews_us) or at > now + FORECAST_US:
            return None
        return max(at, now)

    @property
    def state(self) -> MemberState:
        return self.members[0] if self.members else MemberState("", self.rule.limit_nusd, 0, 0)


class RaiseRequest(NamedTuple):
    """A request of a member for more of a limit until a time."""

    id: str
    name: str
    user_id: str
    amount_nusd: int
    until_us: int
    note: str
    created_at_us: int


class LimitHolder(Protocol):
    """Remembers who set each limit, and raises Forbidden within the transaction of a change that may not be made by
    `actor`."""

    def check_put(
        self, organization_id: str, row: LimitRow | None, before: LimitRule | None, after: LimitRule, actor: str
    ) -> None:
        """A limit is set in place of `before`. `after.id` is `row.id` if what was used stays."""

    def check_delete(self, row: LimitRow, actor: str) -> None: ...

    def check_raise(self, row: LimitRow, nusd: int, until_us: int, actor: str) -> None: ...


class SpendingLimits:
    """The limits of all organizations. A change is in force on every worker when the call returns. Without `holder`
    any actor may make any change."""

    def __init__(self, database: Database, control: Control, holder: LimitHolder | None = None) -> None:
        self._database = database
        self._control = control
        self._holder = holder

    def list_limits(self, organization_id: str, part: ListSlice = WHOLE_LIST) -> list[LimitInfo]:
        """Return the limits of any subject with their states, by name; those of a part follow the name `after`."""
        return self._database.read(partial(self._list, organization_id, part=part))

    def list_rules(self, organization_id: str) -> list[LimitRule]:
        """Return the limits of any subject without their states, by name."""
        sql = f"SELECT {COLUMNS} FROM limits WHERE organization = ? AND {OF_ANY_SUBJECT} ORDER BY name LIMIT ?"
        rows = self._database.read(partial(self._database.fetch, sql, (organization_id, MAX_LIMITS)))
        return [rule_of(row) for row in rows]

    def list_owned(
        self, organization_id: str, kinds: Iterable[str], after: str, maximum: int, used_percent: int = 0
    ) -> list[LimitInfo]:
        """Return the limits that belong to owners of these kinds with ids after `after`, by id; with `used_percent`,
        those of which so much is used or held. A long query."""
        query = partial(list_owned, self._database, organization_id, kinds, after, maximum, used_percent)
        found = self._database.view(query)
        return [_info_of(one, organization_id) for one in found]

    def find(self, organization_id: str, name: str) -> LimitInfo:
        """Return one limit. NotFound."""
        owned = parse_owned(name)
        if owned is not None:
            one = self._database.read(partial(find_owned, self._database, organization_id, owned))
            if one is None:
                raise _missing(name)
            return _info_of(one, organization_id)
        rows = self._database.read(partial(self._list, organization_id, name))
        if not rows:
            raise _missing(name)
        return rows[0]

    def draft_rule(self, organization_id: str, draft: LimitDraft) -> LimitRule:
        """Return the limit of a draft, which is not stored. InvalidRequest, NotFound."""
        subjects = self._database.read(partial(check_subjects, organization_id, draft.subjects))
        return LimitRule("", "draft", subjects, *checked(draft)[1:])

    def put(self, organization_id: str, name: str, draft: LimitDraft, *, actor: str) -> LimitInfo:
        """Set the limit of this name, instead of the one that it was. What was used stays, unless its subjects or its
        period are others. InvalidRequest."""
        if NAME.fullmatch(name) is None:
            raise InvalidRequest("The id of a limit has 1 to 64 letters, digits, dots, dashes and underscores.")
        new_id = ids.new("lim")

        def work(now: int) -> None:
            rule = LimitRule(new_id, name, check_subjects(organization_id, draft.subjects), *checked(draft)[1:])
            known = _load(organization_id, name)
            if known is None and _count(organization_id) >= MAX_LIMITS:
                text = f"An organization has at most {MAX_LIMITS} limits; delete some."
                raise InvalidRequest(text, code="too_many")
            before = None if known is None else self._rule(known.id)
            alike = known is not None and before is not None and _counts_alike(before, rule)
            if known is not None and before is not None and alike:
                # In the order in which its members are counted.
                rule = replace(rule, id=known.id, subjects=before.subjects)
            if self._holder is not None:
                self._holder.check_put(organization_id, known, before, rule, actor)
            if known is not None and alike:
                self._change(known, rule, now)
            else:
                if known is not None:
                    LimitRow.update(deleted_at=now).where(LimitRow.id == known.id).execute()
                self._insert(organization_id, rule, now)
            detail = {"limit": name, **describe(rule)}
            audit.append("limit.set", name, actor=actor, at_us=now, organization_id=organization_id, detail=detail)

        commit(self._database, self._control, work)
        return self.find(organization_id, name)

    def insert_new(self, organization_id: str, name: str, draft: LimitDraft, now: int, *, actor: str) -> LimitRule:
        """Set the first limit of this name; inside a transaction. InvalidRequest."""
        rule = LimitRule(ids.new("lim"), name, check_subjects(organization_id, draft.subjects), *checked(draft)[1:])
        self._insert(organization_id, rule, now)
        detail = {"limit": name, **describe(rule)}
        audit.append("limit.set", name, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
        return rule

    def delete(self, organization_id: str, name: str, *, actor: str) -> None:
        """Remove a limit of any subject; requests that come in afterwards do not count in it. NotFound."""

        def work(now: int) -> None:
            row = _load(organization_id, name)
            if row is None or row.owner:
                raise _missing(name)
            if self._holder is not None:
                self._holder.check_delete(row, actor)
            LimitRow.update(deleted_at=now).where(LimitRow.id == row.id).execute()
            LimitRequest.delete().where(
                LimitRequest.organization == organization_id, LimitRequest.name == name
            ).execute()
            audit.append(
                "limit.delete", name, actor=actor, at_us=now, organization_id=organization_id, detail={"limit": name}
            )

        commit(self._database, self._control, work)

    def ask(self, organization_id: str, name: str, nusd: int, until_us: int, note: str, *, actor: str) -> RaiseRequest:
        """Ask for a raise of a limit by an amount until a time; a later request of the same person replaces it.
        NotFound, InvalidRequest."""
        ident = ids.new("lreq")

        def work(now: int) -> RaiseRequest:
            self._require(organization_id, name)
            _check_raise(nusd, until_us, now)
            table = LimitRequest
            of_person = (table.name == name) & (table.user_id == actor)
            here = table.organization == organization_id
            table.delete().where(here & (of_person | (table.until <= now))).execute()
            if table.select().where(here, table.user_id == actor).count() >= MAX_REQUESTS_OF_PERSON:
                raise InvalidRequest(OWN_REQUESTS, code="too_many")
            check_quota(table.select().where(here), MAX_REQUESTS, "requests for more")
            values = {"amount_nusd": nusd, "until": until_us, "note": note, "created_at": now}
            table.insert(id=ident, organization=organization_id, name=name, user_id=actor, **values).execute()
            detail: dict[str, object] = {"limit": name, "amount": format_usd(nusd), "until": to_iso(until_us)}
            audit.append("limit.ask", name, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
            return RaiseRequest(ident, name, actor, nusd, until_us, note, now)

        return commit(self._database, self._control, work, confirm=False)

    def requests(self, organization_id: str, name: str = "") -> list[RaiseRequest]:
        """Return the pending requests for a higher amount, oldest first."""
        sql = (
            "SELECT id, name, user_id, amount_nusd, until, note, created_at FROM limit_request WHERE organization = ? "
            "AND (? = '' OR name = ?) AND until > ? ORDER BY created_at, id"
        )
        values = (organization_id, name, name, self._database.now_us())
        return [RaiseRequest(*row) for row in self._database.read(partial(self._database.fetch, sql, values))]

    def decline(self, organization_id: str, name: str, ident: str, *, actor: str) -> None:
        """Remove a request for more. NotFound."""

        def work(now: int) -> None:
            row = _find_request(organization_id, name, ident)
            LimitRequest.delete().where(LimitRequest.id == row.id).execute()
            detail: dict[str, object] = {"limit": name, "user": row.user_id}
            audit.append("limit.decline", name, actor=actor, at_us=now, organization_id=organization_id, detail=detail)

        commit(self._database, self._control, work, confirm=False)

    def grant(self, organization_id: str, name: str, ident: str, *, actor: str) -> LimitInfo:
        """Grant a request for a higher amount. Raises NotFound."""

        def work(now: int) -> None:
            asked = _find_request(organization_id, name, ident)
            self._raise(organization_id, name, asked.amount_nusd, asked.until, now, actor)

        commit(self._database, self._control, work)
        return self.find(organization_id, name)

    def grant_raise(self, organization_id: str, name: str, nusd: int, until_us: int, *, actor: str) -> LimitInfo:
        """Raise a limit by an amount until a time; 0 ends a raise. Answers the requests for it. NotFound,
        InvalidRequest."""

        def work(now: int) -> None:
            self._raise(organization_id, name, nusd, until_us, now, actor)

        commit(self._database, self._control, work)
        return self.find(organization_id, name)

    def _raise(self, organization_id: str, name: str, nusd: int, until_us: int, now: int, actor: str) -> None:
        row = self._require(organization_id, name)
        if nusd:
            _check_raise(nusd, until_us, now)
        if self._holder is not None:
            self._holder.check_raise(row, nusd, until_us, actor)
        mine = (LimitRequest.organization == organization_id) & (LimitRequest.name == name)
        LimitRequest.delete().where(mine).execute()
        self._set_raise(row, nusd, until_us if nusd else None, now)
        detail: dict[str, object] = {"limit": name, "amount": format_usd(nusd)}
        if nusd:
            detail["until"] = to_iso(until_us)
        audit.append("limit.raise", name, actor=actor, at_us=now, organization_id=organization_id, detail=detail)

    def end_raises(self, should_continue: Callable[[], bool] = lambda: True) -> int:
        """End the expired raises and return their number."""
        sql = "SELECT id FROM limits WHERE raise_until IS NOT NULL AND raise_until <= ?"
        over = self._database.read(lambda: self._database.fetch(sql, (self._database.now_us(),)))
        count = 0
        for (ident,) in over:
            if not should_continue():
                break
            commit(self._database, self._control, partial(self._end_raise, ident))
            count += 1
        return count

    def _end_raise(self, ident: str, now: int) -> None:
        row = LimitRow.get_or_none(LimitRow.id == ident, LimitRow.raise_until <= now)
        if row is not None:
            self._set_raise(row, 0, None, now)

    def _load(self, organization_id: str, name: str) -> LimitRow | None:
        """Return the row of a limit, None without one; that of an owned limit as its budget has it."""
        owned = parse_owned(name)
        if owned is not None:
            if find_owned(self._database, organization_id, owned) is None:
                return None
            keep_actions(self._database, owned)
        return _load(organization_id, name)

    def _require(self, organization_id: str, name: str) -> LimitRow:
        row = self._load(organization_id, name)
        if row is None:
            raise _missing(name)
        return row

    def _set_raise(self, row: LimitRow, nusd: int, until_us: int | None, now: int) -> None:
        owned = parse_owned(row.name)
        if owned is not None:
            raise_terms(self._database, owned, nusd, until_us)
            return
        LimitRow.update(raise_nusd=nusd, raise_until=until_us, updated_at=now).where(LimitRow.id == row.id).execute()
        self._apply(row.id)

    def _change(self, row: LimitRow, rule: LimitRule, now: int) -> None:
        values = _values(rule) | {"updated_at": now}
        LimitRow.update(**values).where(LimitRow.id == row.id).execute()
        self._apply(row.id)

    def _insert(self, organization_id: str, rule: LimitRule, now: int) -> None:
        times = {"created_at": now, "updated_at": now}
        LimitRow.insert(id=rule.id, organization=organization_id, name=rule.name, **_values(rule), **times).execute()
        self._apply(rule.id)
        if not rule.each:
            insert_share(self._database, rule.share_of(()))

    def _apply(self, ident: str) -> None:
        """Write the amount at which a limit refuses into its row and its budgets."""
        rule = self._rule(ident)
        alert_at = pack_thresholds(rule.alert_at)
        self._database.execute(
            "UPDATE limits SET limit_nusd = ?, alert_at = ?, alert_from = ? WHERE id = ?",
            (rule.limit_nusd, alert_at, min(rule.alert_at, default=None), ident),
        )
        self._database.execute(
            "UPDATE budget SET limit_nusd = ?, alert_at = ?, reservation = ?, period = ? WHERE limit_id = ?",
            (rule.limit_nusd, alert_at, rule.reservation, rule.period, ident),
        )

    def _rule(self, ident: str) -> LimitRule:
        return rule_of(self._database.execute(f"SELECT {COLUMNS} FROM limits WHERE id = ?", (ident,)).fetchall()[0])

    def _list(self, organization_id: str, name: str = "", part: ListSlice = WHOLE_LIST) -> list[LimitInfo]:
        sql = (
            f"SELECT raise_nusd, raise_until, members, top_budget, created_at, {COLUMNS} FROM limits "
            f"WHERE organization = ? AND {OF_ANY_SUBJECT} AND (? = '' OR name = ?) AND name > ? ORDER BY name LIMIT ?"
        )
        rows = self._database.fetch(sql, (organization_id, name, name, part.after, part.limit or MAX_LIMITS))
        now = self._database.now_us()
        infos = []
        single = [rule_of(tuple(columns)).id for _, _, count, _, _, *columns in rows if count <= 1 and not name]
        known = read_single_states(self._database, single, now)
        for raise_nusd, until, count, top, created, *columns in rows:
            rule = rule_of(tuple(columns))
            if count <= 1 and not name:
                states = known.get(rule.id, ())
            elif name or count <= MAX_SORTED or not (states := read_states(self._database, rule, now, budget=top)):
                states = read_states(self._database, rule, now, MAX_SHOWN_MEMBERS if name else 1)
            infos.append(LimitInfo(rule, organization_id, int(raise_nusd), until, int(count), created, states))
        return infos


def describe(rule: LimitRule) -> dict[str, object]:
    """Return a limit for the audit log."""
    return {
        "subjects": [str(subject) for subject in rule.subjects],
        "amount": format_usd(rule.amount_nusd),
        "period": rule.period,
        "actions": to_builtins(rule.actions),
        "reservation": rule.reservation,
        "values": rule.values_of,
    }


def _values(rule: LimitRule) -> dict[str, object]:
    return {
        "subjects": json.dumps(to_builtins(rule.subjects)),
        "amount_nusd": rule.amount_nusd,
        "period": rule.period,
        "actions": json.dumps(to_builtins(rule.actions)),
        "reservation": rule.reservation,
        "values_of": rule.values_of,
    }


def _counts_alike(before: LimitRule, after: LimitRule) -> bool:
    """Return whether what was used under a limit counts under another one."""
    if set(before.subjects) != set(after.subjects) or before.values_of != after.values_of:
        return False
    if before.period and after.period:
        return read_period(before.period).is_as_long_as(read_period(after.period))
    return before.period == after.period


def _check_raise(nusd: int, until_us: int, now: int) -> None:
    if not 0 < nusd <= MAX_AMOUNT_NUSD:
        raise InvalidRequest("A raise is a positive amount in US dollars.", param="amount")
    if until_us <= now:
        raise InvalidRequest("A raise ends in the future.", param="until")


def _find_request(organization_id: str, name: str, ident: str) -> LimitRequest:
    row = LimitRequest.get_or_none(
        LimitRequest.id == ident, LimitRequest.organization == organization_id, LimitRequest.name == name
    )
    if row is None:
        raise NotFound(f"There is no request {ident} for more of the limit {name}.")
    return row


def _load(organization_id: str, name: str) -> LimitRow | None:
    return LimitRow.get_or_none(
        LimitRow.organization == organization_id, LimitRow.name == name, LimitRow.deleted_at.is_null()
    )


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no limit {name}.")


def _count(organization_id: str) -> int:
    here = (LimitRow.organization == organization_id) & (LimitRow.owner == "") & LimitRow.deleted_at.is_null()
    return LimitRow.select().where(here).count()


def _info_of(one: OwnedLimit, organization_id: str) -> LimitInfo:
    return LimitInfo(
        one.rule,
        organization_id,
        one.raise_nusd,
        one.raise_until_us,
        0,
        one.created_us,
        (one.state,),
        one.name,
        one.owner_name,
    )
