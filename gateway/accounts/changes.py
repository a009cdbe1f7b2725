"""How the accounts are changed: one transaction that raises the control version, then the wait for all workers; and
fixed quotas of an organization's objects."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Database

if TYPE_CHECKING:
    import peewee  # first imported by the store, which leaves out other drivers

T = TypeVar("T")

OPERATOR = "operator"  # the actor of a change made by the operator command


def commit(database: Database, control: Control, work: Callable[[int], T], *, confirm: bool = True) -> T:
    """Run `work(now_us)` in one transaction and return its result once every worker knows of it.

    The version is raised first: its row lock makes changes happen one after the other, so what `work` reads cannot
    move under it. `work` must be repeatable. `confirm=False` skips the wait, for changes that only add.
    """

    def transaction() -> T:
        control.bump()
        return work(database.now_us())

    result = database.write(transaction)
    if confirm:
        control.confirm()
    return result


# Fixed quotas of an organization's objects, for which there is no setting. They are far above normal use: they prevent
# a caller from filling the store, and bound the lists that every request walks.

MAX_TEAMS = 2000  # of an organization, as the next nine
MAX_PROVIDER_KEYS = 1000
MAX_KEYS = 100_000  # API keys in any state but deleted; active ones have a lower cap
MAX_PROJECTS = 5000  # archived ones among them
MAX_MEMBERS = 20_000  # inactive ones among them
MAX_SERVICE_ACCOUNTS = 500
MAX_WORKLOAD_IDENTITIES = 500
MAX_CLIENT_IDS = 100_000  # of one kind of object
MAX_INVITATIONS = 10_000  # pending, and those that were over not so long ago
MAX_RULES = 100  # at one place: an organization, a team, a member or a key
MAX_NAME_LENGTH = 255
MAX_NAMES = 2000  # names or networks of one rule, and of all rules at one place; names of one list of a policy


SPLIT_ADVICE = "use another organization"


def check_quota(rows: "peewee.ModelSelect[Any]", maximum: int, noun: str, advice: str = "delete some") -> None:
    """InvalidRequest when there are as many `rows` as there may be; within an open transaction."""
    if rows.count() >= maximum:
        raise InvalidRequest(f"An organization has at most {maximum:,} {noun}; {advice}.", code="too_many")


def check_names(names: Collection[Any], param: str, more: int = 0) -> None:
    """InvalidRequest for a list of too many or too long names, `more` of which are there already."""
    if len(names) + more > MAX_NAMES:
        raise InvalidRequest(f"There may be at most {MAX_NAMES:,} names or networks.", param=param, code="too_many")
    if any(isinstance(name, str) and len(name) > MAX_NAME_LENGTH for name in names):
        raise InvalidRequest(f"A name has at most {MAX_NAME_LENGTH} characters.", param=param)
