"""Limits of any subject: which of them a request falls under, and which budgets it charges therefore."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import NamedTuple

from msgspec import Struct

from gateway.ids import digest
from gateway.limits.models import TOTAL, WINDOW, budget_id

# The kinds of subjects. Those of the caller are known with its key, those of the request with its headers and its body;
# those of the call with the provider that serves it, so that no alias and no fallback escapes a limit.
ORGANIZATION = "organization"
CALLER_KINDS = (ORGANIZATION, "project", "team", "member", "key", "customer")
APPLICATION, TAG, USER, SESSION, RUN = "application", "tag", "user", "session", "run"
REQUEST_KINDS = (APPLICATION, TAG, USER, SESSION, RUN)
MODEL, PROVIDER, PROVIDER_KEY = "model", "provider", "provider_key"
MAPPING = "mapping"  # a model at its provider, which the pattern of a model may name too
CALL_KINDS = (MODEL, PROVIDER, PROVIDER_KEY)
DIGESTED_KINDS = (USER, SESSION)  # under zero data retention requests have digests in place of them
KINDS = (*CALLER_KINDS, *REQUEST_KINDS, *CALL_KINDS)
MAX_SUBJECTS = 2
MAX_VALUE_LENGTH = 256
# The members of a limit for each that are counted apart; further ones share one budget.
MAX_MEMBERS = 20_000
OTHERS = "others"

ALERT, WARN, USE_MODEL, REFUSE = "alert", "warn", "model", "refuse"
ACTIONS = (ALERT, WARN, USE_MODEL, REFUSE)
WHOLE = 100
# Where a tag or end user comes from: anything that the request says, or the claims of its credential alone.
REQUEST, CREDENTIAL = "request", "credential"

# (kind, name of the tag) → the values that a request has; () stands for a request without one.
Facts = Mapping[tuple[str, str], tuple[str, ...]]
NOTHING = ("",)


class Subject(Struct, frozen=True):
    """The subject of a limit: the value of a kind, or `each` of them. `value` "" stands for the requests without one;
    that of a model may be a pattern with *. `name` is that of a tag."""

    kind: str
    value: str = ""
    name: str = ""
    each: bool = False

    def matches(self, facts: Facts) -> tuple[str, ...]:
        """Return the values of a request that fall under this subject. A request without a value has the value ""."""
        values = facts.get((self.kind, self.name)) or NOTHING
        if self.each:
            return values
        if self.kind == MODEL:
            names = (*values, *facts.get((MAPPING, ""), ()))
            pattern = self.value.lower()
            return (self.value,) if any(fnmatchcase(name.lower(), pattern) for name in names) else ()
        is_named = self.value in values
        if not is_named and self.value and self.kind in DIGESTED_KINDS:
            is_named = digest(self.value) in values
        return (self.value,) if is_named else ()

    def __str__(self) -> str:
        """Return the text that `read_subject` accepts."""
        kind = f"{self.kind}:{self.name}" if self.name else self.kind
        if self.each:
            return f"each {kind}"
        if self.kind == ORGANIZATION:
            return kind
        return f"{kind}={self.value}" if self.value else f"no {kind}"


def read_subject(text: str) -> Subject:
    """Parse a subject: organization, team=team_…, tag:product=search, each user, or no user (the requests without
    one). ValueError."""
    head, has_value, value = text.strip().partition("=")
    word, _, rest = head.partition(" ")
    is_word = not has_value and word in ("each", "no")
    kind, _, name = (rest if is_word else head).strip().partition(":")
    if kind not in KINDS or not (is_word or value.strip() or kind == ORGANIZATION):
        raise ValueError(f"{text!r} is no subject: write team=team_…, tag:product=search, each user, or no user.")
    return Subject(kind, value.strip(), name, is_word and word == "each")


class LimitAction(Struct, frozen=True):
    """The action at `share` percent of the amount: alert, warn (an alert and a header of answers), refuse, or use
    `model` instead of the requested one."""

    share: int
    action: str
    model: str = ""

    def __str__(self) -> str:
        """Return the text that `read_action` accepts."""
        return f"{self.action}@{self.share}" + (f"={self.model}" if self.model else "")


def read_action(text: str) -> LimitAction:
    """Parse an action: alert@80, warn@80, refuse@100, or model@90=ID. ValueError."""
    head, _, model = text.strip().partition("=")
    action, _, share = head.partition("@")
    if action not in ACTIONS or not share.isascii() or not share.isdigit() or len(share) > 3:
        raise ValueError(
            f"{text!r} is no action: write alert@80, warn@80, refuse@100, or model@90= and the id of a model."
        )
    return LimitAction(int(share), action, model.strip())


class LimitRule(Struct, frozen=True, eq=False, dict=True):
    """A limit: `amount_nusd` for what falls under all of `subjects` (one or two), in total or for a `period`.

    `name` is the client's id of it in the organization, `id` that of its counters: a limit with other subjects or
    another period has another. `amount_nusd` includes what was granted for a time. `values_of` says which tags and end
    users count. Without an action that refuses, spending is only counted.
    """

    id: str
    name: str
    subjects: tuple[Subject, ...]
    amount_nusd: int
    period: str = ""
    actions: tuple[LimitAction, ...] = ()
    reservation: str = ""
    values_of: str = REQUEST

    @cached_property
    def kind(self) -> str:
        """The kind of its budgets."""
        return WINDOW if self.period else TOTAL

    @cached_property
    def limit_nusd(self) -> int | None:
        """The amount at which requests are refused; None without such an action."""
        share = min((action.share for action in self.actions if action.action == REFUSE), default=None)
        return None if share is None else self.amount_nusd * share // WHOLE

    @cached_property
    def alert_at(self) -> tuple[int, ...]:
        """The percentages of `limit_nusd` at which a warning is sent."""
        shares = {action.share for action in self.actions if action.action in (ALERT, WARN)}
        return tuple(sorted(shares))

    @cached_property
    def each(self) -> bool:
        return any(subject.each for subject in self.subjects)

    @cached_property
    def by_call(self) -> bool:
        """Whether the provider that serves a request decides about it."""
        return any(subject.kind in CALL_KINDS for subject in self.subjects)

    @cached_property
    def acts_early(self) -> bool:
        """Whether it changes answers before it refuses."""
        return any(action.action in (WARN, USE_MODEL) for action in self.actions)

    @property
    def label(self) -> str:
        """The limit as errors name it."""
        return f'"{self.name}" ({" × ".join(map(str, self.subjects))})'

    def shares(self, facts: Facts) -> Iterator["LimitShare"]:
        """Yield the budgets that a request with these facts charges."""
        found = [subject.matches(facts) for subject in self.subjects]
        if not all(found):
            return
        for values in product(*found):
            yield self.share_of(
                [value for subject, value in zip(self.subjects, values, strict=True) if subject.each], facts
            )

    def share_of(self, members: Iterable[str], facts: Facts = {}) -> "LimitShare":  # noqa: B006
        """Return the budget of a member; without members that of the whole limit."""
        if not self.each:
            return LimitShare(budget_id(self.id, self.kind), self.id, self)
        shown = tuple(members)
        place = "".join(facts.get(("project", ""), ())) if self._is_local else ""
        scope_id = scope_id_of(self.id, (place, *shown))
        return LimitShare(budget_id(scope_id, self.kind), scope_id, self, " × ".join(shown))

    @cached_property
    def others(self) -> "LimitShare":
        """The budget of the members beyond MAX_MEMBERS."""
        scope_id = scope_id_of(self.id, (), OTHERS)
        return LimitShare(budget_id(scope_id, self.kind), scope_id, self, OTHERS, True)

    @cached_property
    def _is_local(self) -> bool:
        """Whether its members have names in a project alone."""
        return any(subject.each and subject.kind in (SESSION, RUN) for subject in self.subjects)


def scope_id_of(limit_id: str, members: Iterable[str], mark: str = "member") -> str:
    """Return the id under which a member of a limit is counted, which is also its id in usage rows of groups."""
    text = "\0".join((mark, limit_id, *members))
    return f"lim_{digest(text)}"


class LimitShare(NamedTuple):
    """A budget of a limit that a request charges. `member` is the member as people see it; `shared`: it belongs to all
    members beyond the bound."""

    budget: str
    scope_id: str
    rule: LimitRule
    member: str = ""
    shared: bool = False

    @property
    def label(self) -> str:
        if self.shared:
            return f"{self.rule.label}, counted together beyond {MAX_MEMBERS:,} members"
        if self.rule.each:
            return f"{self.rule.label} for {self.member!r}" if self.member else f"{self.rule.label}, without one"
        return self.rule.label


class LimitSet:
    """The budgets of limits that a request charges; equal sets of budgets are equal. The hash is computed once, since
    each request looks its payer up."""

    __slots__ = ("_budgets", "_hash", "shares")

    def __init__(self, shares: Iterable[LimitShare]) -> None:
        unique = {share.budget: share for share in shares}
        self.shares = tuple(unique.values())
        self._budgets = tuple(unique)
        self._hash = hash(self._budgets)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, LimitSet) and self._budgets == other._budgets)

    def __bool__(self) -> bool:
        return bool(self.shares)
