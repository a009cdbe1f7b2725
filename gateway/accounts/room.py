"""How many things an organization may have that have no setting: far above what one uses, so that nobody fills the
store, and no list that every request walks grows without a bound."""

from collections.abc import Sized
from typing import Any

import peewee

from gateway.errors import InvalidRequest

MOST_TEAMS = 2000  # of an organization, as the next three
MOST_PROVIDER_KEYS = 1000
MOST_INVITATIONS = 10_000  # pending, and those that were over not so long ago
MOST_RULES = 100  # at one place: an organization, a team, a member or a key
MOST_NAMES = 2000  # names or networks of one rule, and of all rules at one place; names of one list of a policy


def check_room(rows: "peewee.ModelSelect[Any]", most: int, what: str) -> None:
    """InvalidRequest when there are as many `rows` as there may be; within a transaction in hand."""
    if rows.count() >= most:
        raise InvalidRequest(f"An organization has at most {most:,} {what}; delete some.", code="too_many")


def check_names(names: Sized, param: str, more: int = 0) -> None:
    """InvalidRequest for a list of too many names, `more` of which are there already."""
    if len(names) + more > MOST_NAMES:
        raise InvalidRequest(f"There may be at most {MOST_NAMES:,} names or networks.", param=param, code="too_many")
