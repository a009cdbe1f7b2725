"""Which limits of its organization a request falls under, and which of them a call at a target charges too."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from gateway.billing.context import RequestContext, billing_identity_of
from gateway.billing.session_budgets import budget_of
from gateway.callers.authentication import Caller
from gateway.limits.cost_bound import Payer
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
from gateway.limits.models import TOTAL, budget_id
from gateway.providers.protocol import Target

MEMO_KEY = "limits"
MAX_SETS = 32  # targets with cached budgets
NOTHING: tuple[object, Any] = (None, None)
UNKNOWN: tuple[Any, Any] = ((None, None), None)
Values = dict[tuple[str, str], tuple[str, ...]]


class RequestLimits(Struct, frozen=True, eq=False):
    """The limits of requests with the same values: the budgets `shares` that they charge, and the limits `calls` that
    depend on the target too. `payer` and `without_credits` are their payers. `facts` are the values of the requests,
    `own_facts` those of their credential alone. `acts_early`: some of them do more than refuse. `call_sets` keeps the
    budgets of targets. `acting` are budgets of the caller's key, member, teams, sessions and runs whose limits do more
    than refuse, `acting_keys` such limits by provider key; the payers charge these anyway.
    """

    shares: LimitSet
    calls: tuple[LimitRule, ...]
    payer: Payer
    without_credits: Payer
    facts: Values
    own_facts: Values
    acts_early: bool
    acting: tuple[LimitShare, ...] = ()
    acting_keys: Mapping[str, LimitRule] = {}
    call_sets: dict[tuple[str, str, str], LimitSet] = {}

    def of_plan(self, plan: object, groups: Iterable[Iterable[Target]], book: LimitBook) -> "RequestLimits":
        """Return the limits of a request with known targets: if each of them charges the same budgets, these are
        charged by the request itself, in one reservation."""
        key = (id(self), id(plan))
        (owner, other), kept = book.kept.get(key, UNKNOWN)
        if owner is self and other is plan:
            known: RequestLimits = kept
            return known
        sets = {self.of_call(target) for group in groups for target in group}
        limits = self
        if len(sets) == 1:
            shares = LimitSet((*self.shares.shares, *sets.pop().shares))
            limits = make_limits(self.payer, shares, (), self.facts, self.own_facts, self.acting, self.acting_keys)
        book.keep(key, (self, plan), limits)
        return limits

    def acting_at(self, target: Target) -> list[LimitShare]:
        """Return the budgets of a call whose limits do more than refuse."""
        shares = self.shares.shares
        if self.calls:
            shares += self.of_call(target).shares
        acting = [share for share in shares if share.rule.acts_early]
        rule = self.acting_keys.get(target.credential.ident)
        return [*acting, *self.acting] if rule is None else [*acting, *self.acting, _share_of_owner(rule)]

    def of_call(self, target: Target) -> LimitSet:
        """Return the budgets that a call of `target` charges besides."""
        mapping = target.mapping
        credential = target.credential
        key = (mapping.key, target.provider.id, credential.ident)
        found = self.call_sets.get(key)
        if found is None:
            more = {
                (MODEL, ""): (mapping.model,),
                (MAPPING, ""): (mapping.key, f"{target.provider.id}/{mapping.model}"),
                (PROVIDER, ""): (target.provider.id,),
                (PROVIDER_KEY, ""): (credential.ident,),
            }
            found = LimitSet(_shares(self.calls, {**self.facts, **more}, {**self.own_facts, **more}))
            if len(self.call_sets) < MAX_SETS:
                self.call_sets[key] = found
        return found


class CallerLimits(Struct, frozen=True, eq=False):
    """The limits that may concern the requests of a caller: `varying` depend on the request. `whole` is the result for
    every request if nothing depends on it, `names` are the tags and other metadata that count, `kinds` the kinds of
    subjects that requests decide about. `of_sessions` are limits of each session or run that do more than refuse."""

    whole: RequestLimits
    varying: tuple[LimitRule, ...]
    of_sessions: tuple[LimitRule, ...]
    names: tuple[str, ...]
    kinds: frozenset[str]

    def of(self, context: RequestContext, book: LimitBook) -> RequestLimits:
        """Return the limits that a request falls under."""
        kinds = self.kinds
        if not kinds:
            return self.whole
        metadata = context.metadata
        values = (
            context.source if APPLICATION in kinds else "",
            context.end_user if USER in kinds else "",
            context.session if SESSION in kinds else "",
            *[metadata.get(name, "") for name in self.names],
        )
        key = (id(self), *values)
        owner, kept = book.kept.get(key, NOTHING)
        if owner is self:
            known: RequestLimits = kept
            return known
        limits = self._find(values, context.caller.tags)
        book.keep(key, self, limits)
        return limits

    def _find(self, given: tuple[str, ...], tags: Mapping[str, str]) -> RequestLimits:
        whole = self.whole
        source, user, session, *values = given
        common = {**whole.facts, (APPLICATION, ""): (source,), (SESSION, ""): (session,)}
        facts = common | {(USER, ""): (user,)}
        own_facts = common | {(USER, ""): (tags.get(USER, ""),)}
        for name, value in zip(self.names, values, strict=True):
            facts[TAG, name] = (value,)
            own_facts[TAG, name] = (tags.get(name, ""),)
            if name == RUN:
                facts[RUN, ""] = own_facts[RUN, ""] = (value,)
        shares = LimitSet((*whole.shares.shares, *_shares(self.varying, facts, own_facts)))
        (project,) = whole.facts["project", ""]
        names = {SESSION: session, RUN: facts.get((RUN, ""), ("",))[0]}
        acting = [*whole.acting]
        for rule in self.of_sessions:
            part = rule.subjects[-1].kind
            if names[part]:
                scope_id = budget_of(part, project, names[part])
                acting.append(LimitShare(budget_id(scope_id, TOTAL), scope_id, rule, names[part]))
        return make_limits(whole.payer, shares, whole.calls, facts, own_facts, tuple(acting), whole.acting_keys)


def make_limits(
    payer: Payer,
    shares: LimitSet,
    calls: tuple[LimitRule, ...],
    facts: Values,
    own_facts: Values,
    acting: tuple[LimitShare, ...] = (),
    acting_keys: Mapping[str, LimitRule] = {},
) -> RequestLimits:
    """Return the limits of requests of a payer."""
    payer = payer._replace(limits=shares or None)
    acts_early = any(rule.acts_early for rule in (*calls, *(share.rule for share in shares.shares)))
    without_credits = payer._replace(credits=False)
    acts_early = acts_early or bool(acting or acting_keys)
    return RequestLimits(shares, calls, payer, without_credits, facts, own_facts, acts_early, acting, acting_keys)


def limits_of(book: LimitBook, context: RequestContext) -> RequestLimits | None:
    """Return the limits that a request falls under, None without any. Unavailable."""
    caller = context.caller
    if MEMO_KEY in caller.memo:
        limits: CallerLimits | None = caller.memo[MEMO_KEY]
    else:
        found = book.find(caller.organization_id)
        limits = None if found is None else _compile(caller, found, _find_own(book, caller, found))
        caller.memo[MEMO_KEY] = limits
    return None if limits is None else limits.of(context, book)


def _find_own(book: LimitBook, caller: Caller, found: OrganizationLimits) -> tuple[LimitRule, ...]:
    """Return the limits of the caller's key, member, teams and project that do more than refuse."""
    if not found.acting:
        return ()
    owners = (caller.key_id, caller.member_id, caller.project_id, *(team for team, _ in caller.teams))
    return book.find_acting([owner for owner in owners if owner])


def _share_of_owner(rule: LimitRule) -> LimitShare:
    """Return the budget of a limit with an owner, which has the id of the limit."""
    return LimitShare(rule.id, rule.id.rpartition(":")[0], rule)


def _compile(caller: Caller, found: OrganizationLimits, own: tuple[LimitRule, ...]) -> CallerLimits | None:
    """Return the limits that may concern a caller, None without any; `own` are those of its owners that act early."""
    facts: Values = {
        ("organization", ""): (caller.organization_id,),
        ("project", ""): (caller.project_id,),
        ("team", ""): tuple(team for team, members in found.teams.items() if caller.member_id in members),
        ("member", ""): (caller.member_id,),
        ("key", ""): (caller.key_id,),
        ("customer", ""): (caller.key_id,) if caller.key_kind == "customer" else (),
    }
    rules = [rule for rule in found.rules if _may_concern(rule, facts)]
    if not (rules or own or found.provider_keys):
        return None
    of_sessions = tuple(rule for rule in own if len(rule.subjects) > 1)
    acting = tuple(_share_of_owner(rule) for rule in own if len(rule.subjects) == 1)
    fixed = [rule for rule in rules if not rule.by_call and not _varies(rule)]
    calls = tuple(rule for rule in rules if rule.by_call)
    shares = LimitSet(_shares(fixed, facts, facts))
    payer = billing_identity_of(caller).payer
    whole = make_limits(payer, shares, calls, facts, facts, acting, found.provider_keys)
    varying = tuple(rule for rule in rules if not rule.by_call and _varies(rule))
    subjects = [subject for rule in (*rules, *of_sessions) for subject in rule.subjects]
    kinds = frozenset(subject.kind for subject in subjects if subject.kind in REQUEST_KINDS)
    names = {subject.name for subject in subjects if subject.kind == TAG} | ({RUN} if RUN in kinds else set())
    return CallerLimits(whole, varying, of_sessions, tuple(sorted(names)), kinds)


def _shares(rules: Iterable[LimitRule], facts: Values, own_facts: Values) -> Iterable[LimitShare]:
    for rule in rules:
        yield from rule.shares(own_facts if rule.values_of == CREDENTIAL else facts)


def _may_concern(rule: LimitRule, facts: Values) -> bool:
    return all(subject.matches(facts) for subject in rule.subjects if subject.kind in CALLER_KINDS)


def _varies(rule: LimitRule) -> bool:
    """Return whether a limit depends on more of a request than its caller and its target."""
    return any(subject.kind in REQUEST_KINDS for subject in rule.subjects)
