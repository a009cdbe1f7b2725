"""Attributes of members that identity providers state, such as the cost center, for chargeback.

Each value has the hours in which it held, so that a report counts usage with the value of its time, although no usage
row has it. Statistics are hourly sums; a change therefore counts from the beginning of its hour on, and usage before
the first value of a person counts without one.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import peewee
from msgspec import Struct

from gateway.accounts import audit
from gateway.callers.models import Member
from gateway.clock import HOUR_US
from gateway.configuration.configured_providers import ATTRIBUTES
from gateway.store.database import Base, Database

# Attributes that identify one person: an erasure deletes them.
PERSONAL = frozenset(("employeeNumber",))
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
MAX_LENGTH = 255  # characters of a value
MAX_PERIODS = 100  # of an attribute of a member; the oldest are forgotten
MEMBERS_PER_STATEMENT = 1_000
MIN_WORD_LENGTH = 3  # of a word that names a person; shorter ones are parts of ordinary texts


class MemberAttribute(Base):
    """A value that held in the hours [since, until) since the epoch; `until` is null for the current value."""

    member = peewee.ForeignKeyField(Member, on_delete="CASCADE", backref="+")
    member_id: str
    name = peewee.CharField(40)
    since = peewee.BigIntegerField()
    until = peewee.BigIntegerField(null=True)
    value = peewee.CharField(255)

    class Meta:
        table_name = "member_attribute"
        primary_key = peewee.CompositeKey("member", "name", "since")


class AttributePeriod(Struct, frozen=True):
    """A value and the hours [since, until) since the epoch in which it held; `until` is None for the current one."""

    name: str
    value: str
    since: int
    until: int | None


def clean_value(value: Any) -> str:
    """Return a stated value in the form in which it is stored: one line of at most MAX_LENGTH characters, "" for
    none. Of several values the first counts."""
    if isinstance(value, list):
        value = next(iter(value), "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return ""
    printable = "".join(letter if letter.isprintable() else " " for letter in value[: 4 * MAX_LENGTH])
    return " ".join(printable.split())[:MAX_LENGTH].rstrip()


def of_enterprise_user(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the values among the stored SCIM attributes of a user."""
    stated = attributes.get(ENTERPRISE)
    if not isinstance(stated, dict):
        return {}
    values = {name: clean_value(stated.get(name)) for name in ATTRIBUTES}
    return {name: value for name, value in values.items() if value}


def write_provisioned(
    member_id: str, before: Mapping[str, Any], after: Mapping[str, Any], *, actor: str, now: int
) -> None:
    """Store the values that a change of a user by SCIM states. A value that SCIM stated before and states no more ends;
    values from a sign-in stay. Within a transaction."""
    ended = dict.fromkeys(of_enterprise_user(before), "")
    write_attributes(member_id, {**ended, **of_enterprise_user(after)}, actor=actor, now=now)


def write_attributes(member_id: str, stated: Mapping[str, str], *, actor: str, now: int) -> None:
    """Store values of a member; "" ends an attribute, and those that are not stated stay. Within a transaction."""
    changed = list_changes(member_id, stated)
    if not changed:
        return
    member = Member.get_by_id(member_id)
    hour = now // HOUR_US
    for name in changed:
        periods = [period for period in load_periods([member_id]).get(member_id, ()) if period.name == name]
        _end(member_id, name, hour)
        for oldest in periods[: 1 - MAX_PERIODS]:
            MemberAttribute.delete().where(_of(member_id, name), MemberAttribute.since == oldest.since).execute()
        if stated[name]:
            # A person cannot have used a key before they became a member.
            is_first = not periods and member.created_at // HOUR_US == hour
            since = 0 if is_first else hour
            _insert(member_id, name, since, stated[name])
    detail = {"attributes": changed}
    audit.append(
        "member.update", member_id, actor=actor, at_us=now, organization_id=member.organization_id, detail=detail
    )


def list_changes(member_id: str, stated: Mapping[str, str]) -> list[str]:
    """Return the names of those attributes that `stated` changes. Within a read or write."""
    current = current_of(load_periods([member_id]).get(member_id, ()))
    return [name for name in ATTRIBUTES if name in stated and stated[name] != current.get(name, "")]


def current_of(periods: Iterable[AttributePeriod]) -> dict[str, str]:
    """Return the current values by name."""
    values = {period.name: period.value for period in periods if period.until is None}
    return {name: values[name] for name in ATTRIBUTES if name in values}


def read_current(database: Database, member_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the current values by name of each member."""
    found = database.read(lambda: load_periods(member_ids, is_current=True))
    return {member_id: current_of(found.get(member_id, ())) for member_id in member_ids}


def read_periods(database: Database, member_ids: Sequence[str], name: str = "") -> dict[str, list[AttributePeriod]]:
    """Return the periods of each member that has some, oldest first; `name`: only of this attribute."""
    return database.read(lambda: load_periods(member_ids, name))


def erase(member_id: str, words: Collection[str]) -> None:
    """Delete the values of a member that name the person: personal attributes, and values with one of the words. The
    other values stay, because the books of a department need them. Within a transaction."""
    MemberAttribute.delete().where(
        MemberAttribute.member == member_id, MemberAttribute.name.in_(list(PERSONAL))
    ).execute()
    named = "|".join(re.escape(word) for word in words if len(word) >= MIN_WORD_LENGTH)
    naming = re.compile(rf"(?<!\w)({named})(?!\w)", re.IGNORECASE) if named else None
    for period in load_periods([member_id]).get(member_id, ()):
        if naming and naming.search(period.value):
            MemberAttribute.update(value=audit.ERASED).where(
                _of(member_id, period.name), MemberAttribute.since == period.since
            ).execute()


def _of(member_id: str, name: str) -> Any:
    return (MemberAttribute.member == member_id) & (MemberAttribute.name == name)


def _end(member_id: str, name: str, hour: int) -> None:
    """End the value at an hour. Values from that hour on did not hold: the last change in an hour counts for all of
    it."""
    MemberAttribute.delete().where(_of(member_id, name), MemberAttribute.since >= hour).execute()
    later = MemberAttribute.until.is_null() | (MemberAttribute.until > hour)
    MemberAttribute.update(until=hour).where(_of(member_id, name), later).execute()


def _insert(member_id: str, name: str, since: int, value: str) -> None:
    """Insert the current value. A transaction that runs at the same time may have inserted one for the same hour, which
    this one replaces."""
    MemberAttribute.insert(member=member_id, name=name, since=since, value=value).on_conflict(
        conflict_target=[MemberAttribute.member, MemberAttribute.name, MemberAttribute.since],
        update={"value": value, "until": None},
    ).execute()


def load_periods(
    member_ids: Sequence[str], name: str = "", is_current: bool = False
) -> dict[str, list[AttributePeriod]]:
    """The part of `read_periods` that runs within a read or write; `is_current`: only the values that still hold."""
    found: dict[str, list[AttributePeriod]] = {}
    for start in range(0, len(member_ids), MEMBERS_PER_STATEMENT):
        some = list(member_ids[start : start + MEMBERS_PER_STATEMENT])
        columns = ("member", "name", "value", "since", "until")
        rows: Any = MemberAttribute.select(*(getattr(MemberAttribute, column) for column in columns))
        rows = rows.where(MemberAttribute.member.in_(some))
        if name:
            rows = rows.where(MemberAttribute.name == name)
        if is_current:
            rows = rows.where(MemberAttribute.until.is_null())
        for member_id, *period in rows.order_by(MemberAttribute.member, MemberAttribute.since).tuples():
            found.setdefault(member_id, []).append(AttributePeriod(*period))
    return found
