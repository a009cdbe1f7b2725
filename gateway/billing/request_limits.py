"""Which limits of its organization a request falls under, and which of them a call at a target charges too."""

from collections.abc import Iterable

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.limits.limit_book import LimitBook, OrganizationLimits
from gateway.limits.limit_rules import (
    APPLICATION,
    CALLER_KINDS,
    CREDENTIAL,
    MAPPING,
    MODEL,
    PROVIDER,
    PROVIDER_KEY,
    REQUEST_KINDS,
    RUN,
    SESSION,
    TAG,
    USER,
    LimitRule,
    LimitSet,
    LimitShare,
)
from gateway.providers.protocol import Target

MEMO_KEY = "limits"
MAX_SETS = 1_000  # of one caller
Values = dict[tuple[str, str], tuple[str, ...]]


class RequestLimits(Struct, frozen=True, eq=False):
    """The limits of one request: the budgets `shares` that it charges, and the limits `calls` that depend on its target
    too. `call_sets` keeps the budgets of targets. `facts` are the values of the request, `own_facts` those of its
    credential alone."""

    shares: LimitSet
    calls: tuple[LimitRule, ...]
    facts: Values
    own_facts: Values
    call_sets: dict[tuple[str, str, str], LimitSet]

    def of_call(self, target: Target) -> LimitSet:
        """Return the budgets that a call of `target` charges besides."""
        mapping = target.mapping
        credential = target.credential
        key = (mapping.key, target.provider.id, credential.ident)
        found = self.call_sets.get(key)
        if found is None:
            more = {
                (MODEL, ""): (mapping.model,),
                (MAPPING, ""): (mapping.key,),
                (PROVIDER, ""): (target.provider.id,),
                (PROVIDER_KEY, ""): (credential.ident,),
            }
            found = LimitSet(_shares(self.calls, {**self.facts, **more}, {**self.own_facts, **more}))
            if len(self.call_sets) < MAX_SETS:
                self.call_sets[key] = found
        return found


class CallerLimits(Struct, frozen=True, eq=False):
    """The limits that may concern the requests of a caller: `varying` depend on the request. `whole` is the result for
    every request if nothing depends on it."""

    whole: RequestLimits
    varying: tuple[LimitRule, ...]
    varies: bool
    tags: tuple[str, ...]

    def of(self, context: RequestContext) -> RequestLimits:
        """Return the limits that a request falls under."""
        if not self.varies:
            return self.whole
        whole = self.whole
        more = {
            (APPLICATION, ""): (context.source,),
            (USER, ""): (context.end_user,),
            (SESSION, ""): (context.session,),
            (RUN, ""): (context.metadata.get(RUN, ""),),
        }
        facts = {**whole.facts, **more, **{(TAG, name): (context.metadata.get(name, ""),) for name in self.tags}}
        tags = context.caller.tags
        own = {**whole.facts, **more, (USER, ""): (tags.get(USER, ""),)}
        own |= {(TAG, name): (tags.get(name, ""),) for name in self.tags}
        shares = LimitSet((*whole.shares.shares, *_shares(self.varying, facts, own)))
        return RequestLimits(shares, whole.calls, facts, own, {})


def limits_of(book: LimitBook, context: RequestContext) -> RequestLimits | None:
    """Return the limits that a request falls under, None without any. Unavailable."""
    caller = context.caller
    if MEMO_KEY in caller.memo:
        limits: CallerLimits | None = caller.memo[MEMO_KEY]
    else:
        found = book.find(caller.organization_id)
        limits = caller.memo[MEMO_KEY] = None if found is None else _compile(caller, found)
    return None if limits is None else limits.of(context)


def _compile(caller: Caller, found: OrganizationLimits) -> CallerLimits | None:
    """Return the limits that may concern a caller, None without any."""
    facts: Values = {
        ("organization", ""): (caller.organization_id,),
        ("project", ""): (caller.project_id,),
        ("team", ""): tuple(team for team, members in found.teams.items() if caller.member_id in members),
        ("member", ""): (caller.member_id,),
        ("key", ""): (caller.key_id,),
        ("customer", ""): (caller.key_id,) if caller.key_kind == "customer" else (),
    }
    rules = [rule for rule in found.rules if _may_concern(rule, facts)]
    if not rules:
        return None
    fixed = [rule for rule in rules if not rule.by_call and not _varies(rule)]
    whole = RequestLimits(
        LimitSet(_shares(fixed, facts, facts)), tuple(rule for rule in rules if rule.by_call), facts, facts, {}
    )
    varying = tuple(rule for rule in rules if not rule.by_call and _varies(rule))
    names = {subject.name for rule in rules for subject in rule.subjects if subject.kind == TAG}
    return CallerLimits(whole, varying, any(map(_varies, rules)), tuple(sorted(names)))


def _shares(rules: Iterable[LimitRule], facts: Values, own_facts: Values) -> Iterable[LimitShare]:
    for rule in rules:
        yield from rule.shares(own_facts if rule.values_of == CREDENTIAL else facts)


def _may_concern(rule: LimitRule, facts: Values) -> bool:
    return all(subject.matches(facts) for subject in rule.subjects if subject.kind in CALLER_KINDS)


def _varies(rule: LimitRule) -> bool:
    """Return whether a limit depends on more of a request than its caller and its target."""
    return any(subject.kind in REQUEST_KINDS for subject in rule.subjects)
