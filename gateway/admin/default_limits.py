"""The limits of any subject that new organizations begin with, from the setting `[organizations] limits`."""

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from gateway.accounts.changes import OPERATOR
from gateway.accounts.limit_drafts import CHECKS, LimitDraft, checked
from gateway.accounts.spending_limits import NAME, SpendingLimits
from gateway.admin.funding import LimitSetter, write_setters
from gateway.admin.held_limits import AMOUNT
from gateway.callers.permissions import LIMIT_RANKS
from gateway.control.version import Control
from gateway.errors import GatewayError
from gateway.limits.limit_rules import REQUEST, read_action, read_subject
from gateway.limits.models import LIKELY
from gateway.limits.periods import join_period
from gateway.money import parse_usd
from gateway.store.database import Database

REPEATED = ("--subject", "--action")
OPTIONS = (*REPEATED, "--period", "--timezone", "--reservation", "--values")


class DefaultLimit(NamedTuple):
    """A limit of each new organization, with its id."""

    name: str
    draft: LimitDraft


def read_default_limit(text: str) -> DefaultLimit:
    """Parse a limit that is written like the arguments of `./manage limits put`. ValueError."""
    words = shlex.split(text)
    if len(words) < 2 or NAME.fullmatch(words[0]) is None:
        raise ValueError(f"{text[:80]!r} is no limit: write its id, its amount and its options.")
    name, amount, *rest = words
    given: dict[str, list[str]] = {}
    for option, value in zip(rest[::2], rest[1::2], strict=False):
        if option not in OPTIONS or (option in given and option not in REPEATED):
            raise ValueError(f"{name}: {option[:40]!r} is no option, or given twice; use {', '.join(OPTIONS)}.")
        given.setdefault(option, []).append(value)
    if len(rest) % 2 or "--subject" not in given:
        raise ValueError(f"{name}: each option has a value, and a limit has a subject.")
    subjects = tuple(map(read_subject, given["--subject"]))
    for subject in subjects:
        if subject.value and subject.kind in CHECKS:
            raise ValueError(f"{name}: a new organization has no {subject.kind} {subject.value}.")
    try:
        draft = LimitDraft(
            subjects,
            parse_usd(amount),
            join_period(*(given.get(option, [None])[0] for option in ("--period", "--timezone"))),
            tuple(map(read_action, given.get("--action", ["refuse@100"]))),
            given.get("--reservation", [LIKELY])[0],
            given.get("--values", [REQUEST])[0],
        )
        return DefaultLimit(name, checked(draft))
    except GatewayError as error:
        raise ValueError(f"{name}: {error.message}") from None


def find_limit_problems(texts: Iterable[str]) -> list[str]:
    """Return what is wrong with the setting, one line each."""
    problems = []
    names: set[str] = set()
    for text in texts:
        try:
            name = read_default_limit(text).name
        except ValueError as error:
            problems.append(str(error))
            continue
        if name in names:
            problems.append(f"{name}: two limits have this id")
        names.add(name)
    return problems


def insert_default_limits(
    database: Database, control: Control, organization_id: str, texts: Iterable[str], now: int
) -> None:
    """Set the limits of a new organization; inside the transaction that inserts it. Everyone who may set limits in the
    organization may change them."""
    limits = SpendingLimits(database, control)
    for name, draft in map(read_default_limit, texts):
        rule = limits.insert_new(organization_id, name, draft, now, actor=OPERATOR)
        setter = LimitSetter(OPERATOR, LIMIT_RANKS["billing"], rule.amount_nusd, "")
        write_setters(database, rule.id, {AMOUNT: setter})
