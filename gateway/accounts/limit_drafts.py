"""Limits as clients describe them, and the checks of such drafts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gateway.accounts.key_tags import TAG_NAME
from gateway.callers.models import ApiKey, Member, Project, ProviderKey, Team
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.limit_rules import (
    CREDENTIAL,
    KINDS,
    MAX_SUBJECTS,
    MAX_VALUE_LENGTH,
    MODEL,
    REFUSE,
    REQUEST,
    TAG,
    USE_MODEL,
    WHOLE,
    LimitAction,
    Subject,
)
from gateway.limits.models import EXACT, LIKELY
from gateway.limits.periods import read_period
from gateway.money import MAX_AMOUNT_NUSD

MAX_ACTIONS = 8
USUAL_ACTIONS = (LimitAction(WHOLE, REFUSE),)
# Kinds of subjects that a request may leave out.
OPTIONAL_KINDS = ("team", "customer", "application", "tag", "user", "session", "run")


class LimitDraft(NamedTuple):
    """A limit as a client describes it; see LimitRule."""

    subjects: tuple[Subject, ...]
    amount_nusd: int
    period: str = ""
    actions: tuple[LimitAction, ...] = USUAL_ACTIONS
    reservation: str = LIKELY
    values_of: str = REQUEST


def checked(draft: LimitDraft) -> LimitDraft:
    """Return a draft with its period as it is stored. InvalidRequest."""
    if not 0 <= draft.amount_nusd <= MAX_AMOUNT_NUSD:
        raise InvalidRequest("The amount of a limit cannot be negative.", param="amount")
    if draft.reservation not in (LIKELY, EXACT) or draft.values_of not in (REQUEST, CREDENTIAL):
        raise InvalidRequest("The reservation is likely or exact; values come from the request or the credential.")
    _check_actions(draft.actions)
    return draft._replace(period=str(read_period(draft.period)) if draft.period else "")


def _check_actions(actions: Sequence[LimitAction]) -> None:
    if not 0 < len(actions) <= MAX_ACTIONS:
        raise InvalidRequest(f"A limit has 1 to {MAX_ACTIONS} actions.", param="actions")
    for action in actions:
        if not 1 <= action.share <= WHOLE:
            raise InvalidRequest(f"A share is 1 to {WHOLE} percent of the amount.", param="actions")
        if (action.action == USE_MODEL) != bool(action.model):
            raise InvalidRequest("The action model, and no other, needs the id of a model to use.", param="actions")
    once = [action.action for action in actions if action.action in (REFUSE, USE_MODEL)]
    if len(once) > len(set(once)):
        raise InvalidRequest("A limit refuses, and uses another model, at one share.", param="actions")


def check_subjects(organization_id: str, subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Return the subjects of a limit as they are stored; within a transaction. InvalidRequest, NotFound."""
    found = tuple(_check_subject(organization_id, subject) for subject in subjects)
    if not 1 <= len(found) <= MAX_SUBJECTS:
        raise InvalidRequest("A limit has one subject or two.", param="subjects")
    if len({(subject.kind, subject.name) for subject in found}) < len(found):
        raise InvalidRequest("The two subjects of a limit are of different kinds.", param="subjects")
    return found


def _check_subject(organization_id: str, subject: Subject) -> Subject:
    if subject.kind not in KINDS:
        raise InvalidRequest(f"There is no subject {subject.kind!r}; use one of {', '.join(KINDS)}.", param="subjects")
    if (subject.kind == TAG) != bool(subject.name) or (subject.name and TAG_NAME.fullmatch(subject.name) is None):
        raise InvalidRequest("A tag, and no other subject, has a name of lower-case letters.", param="subjects")
    if subject.each:
        return Subject(subject.kind, "", subject.name, True)
    if subject.kind == "organization":
        return Subject(subject.kind, organization_id)
    if not subject.value and subject.kind not in OPTIONAL_KINDS:
        raise InvalidRequest(f"Name the {subject.kind}, or set each.", param="subjects")
    if len(subject.value) > MAX_VALUE_LENGTH or "\0" in subject.value:
        raise InvalidRequest(f"A subject has at most {MAX_VALUE_LENGTH} characters.", param="subjects")
    if subject.kind == MODEL and set("[]?") & set(subject.value):
        raise InvalidRequest("The pattern of a model knows * alone.", param="subjects")
    if subject.value and subject.kind in CHECKS and not CHECKS[subject.kind](organization_id, subject.value):
        raise NotFound(f"There is no {subject.kind.replace('_', ' ')} {subject.value} in this organization.")
    return Subject(subject.kind, subject.value, subject.name)


def _has_key(organization_id: str, ident: str) -> bool:
    query = ApiKey.select().join(Project).where(ApiKey.id == ident, Project.organization == organization_id)
    return query.exists()


def _has_customer(organization_id: str, ident: str) -> bool:
    return (
        _has_key(organization_id, ident)
        and ApiKey.select().where(ApiKey.id == ident, ApiKey.kind == "customer").exists()
    )


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "project": lambda organization, ident: _exists(Project, organization, ident),
    "team": lambda organization, ident: _exists(Team, organization, ident),
    "member": lambda organization, ident: _exists(Member, organization, ident),
    "provider_key": lambda organization, ident: _exists(ProviderKey, organization, ident),
    "key": _has_key,
    "customer": _has_customer,
}


def _exists(model: Any, organization_id: str, ident: str) -> bool:
    return bool(model.select().where(model.id == ident, model.organization == organization_id).exists())
