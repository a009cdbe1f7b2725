"""The operator's rate limits, for organizations, projects, keys, models and operations."""

from collections.abc import Mapping

from gateway.accounts import audit, keys
from gateway.accounts.changes import commit
from gateway.accounts.organizations import find_organization
from gateway.accounts.projects import find_project
from gateway.admin.held_limits import AmountHold
from gateway.catalogue.catalogue import Catalogue
from gateway.configuration.setting_checks import suggest_similar
from gateway.control.version import Control
from gateway.errors import NotFound
from gateway.limits.rate_rules import EACH_SUBJECT, RateLimits
from gateway.neutral import operations
from gateway.store.database import Database

# Rate limits that accounts set for their own projects and keys, below the operator's.

ACTION = "rate_limit.update"


def change_account_rates(
    database: Database,
    control: Control,
    limits: RateLimits,
    place: tuple[str, str],
    organization_id: str,
    amounts: Mapping[str, int | None],
    *,
    actor: str,
    is_manager: bool = True,
) -> None:
    """Set or remove (None) limits of a place ("project" or "key", and its id) by kind. They are in force on every
    worker on return. Raises InvalidRequest (rate_limit_above_operators) or Forbidden (see `AmountHold`) and then
    changes none."""
    scope, subject = place
    hold = AmountHold(database, organization_id, ACTION, actor, is_manager)

    def work(now: int) -> None:
        before = {kind: rate.own for kind, rate in limits.of(scope, subject).items()}
        hold.check(subject, before, amounts)
        for kind, amount in amounts.items():
            limits.write_own(scope, subject, kind, amount)
        detail = {"scope": scope, "own": True, **amounts}
        audit.append(ACTION, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)

    commit(database, control, work)


__all__ = ("ACTION", "change", "check_subject")


def check_subject(database: Database, catalogue: Catalogue, place: tuple[str, str]) -> str | None:
    """Raise NotFound if the subject of a (scope, subject) does not exist. Return a warning for a model that is not in
    the catalogue: it may belong to an organization's custom provider."""
    scope, subject = place
    if subject == EACH_SUBJECT:
        return None
    if scope == "organization":
        find_organization(database, subject)
    elif scope == "project":
        find_project(database, subject)
    elif scope == "key":
        keys.find(database, subject)
    elif scope == "operation":
        _check_operation(database, subject)
    elif catalogue.find(subject) is None:
        return f"The catalogue has no model {subject}{suggest_similar(subject, catalogue.models)}"
    return None


def _check_operation(database: Database, subject: str) -> None:
    organization_id, _, operation = subject.rpartition("/")
    if organization_id:
        find_organization(database, organization_id)
    if operation not in operations.names():
        raise NotFound(f"There is no operation {operation}{suggest_similar(operation, operations.names())}")


def change(
    database: Database,
    control: Control,
    limits: RateLimits,
    place: tuple[str, str],
    amounts: Mapping[str, int | None],
    *,
    actor: str,
) -> None:
    """Set or remove (None) limits of a (scope, subject) by kind. They are in force on every worker on return."""
    scope, subject = place

    def work(now: int) -> None:
        for kind, amount in amounts.items():
            limits.write_limit(scope, subject, kind, amount)
            detail = {"scope": scope, "kind": kind, "amount": amount}
            audit.append(ACTION, subject, actor=actor, at_us=now, detail=detail)

    commit(database, control, work)
