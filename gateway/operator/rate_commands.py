"""`rates`: limits on requests and tokens per minute and on concurrency, per organization, project, key or model."""

from collections.abc import Callable

import click

from gateway.accounts import audit, keys
from gateway.accounts.changes import OPERATOR, commit
from gateway.configuration.names import near
from gateway.errors import NotFound
from gateway.limits.rate_rules import EACH, KINDS, NAMES, SCOPES, RateLimits
from gateway.neutral import operations
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table, say

SCOPE = click.argument("scope", type=click.Choice(SCOPES))
SUBJECT = click.argument("subject")


@click.group()
def rates() -> None:
    """Rate limits; there are none by default."""


@rates.command("set")
@AS_JSON
@SCOPE
@SUBJECT
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("amount", type=click.IntRange(min=0))
@click.pass_context
def set_(ctx: click.Context, scope: str, subject: str, kind: str, amount: int) -> None:
    """Limit SUBJECT (an id or a model; each: every one in the scope separately) to AMOUNT of KIND; 0 blocks it.

    requests and tokens are per minute; concurrency is the number of simultaneous requests. A limit for an operation
    (chat, embeddings) applies to each organization, a limit for ORGANIZATION/OPERATION to one organization.
    """
    installation = ctx.with_resource(opened())
    if subject != "each":
        CHECKS[scope](installation, subject)
    _change(installation, scope, _subject(subject), (kind,), amount)
    print_result(f"{scope} {subject}: {amount} {NAMES[kind]}.", scope=scope, subject=subject, kind=kind, amount=amount)


@rates.command()
@AS_JSON
@SCOPE
@SUBJECT
@click.argument("kind", type=click.Choice(KINDS), required=False)
@click.pass_context
def clear(ctx: click.Context, scope: str, subject: str, kind: str | None) -> None:
    """Remove the limit of SUBJECT for KIND, or all of its limits."""
    _change(ctx.with_resource(opened()), scope, _subject(subject), (kind,) if kind else KINDS, None)
    print_result(f"{scope} {subject}: no limit.", scope=scope, subject=subject, kind=kind, amount=None)


@rates.command()
@AS_JSON
@click.pass_context
def show(ctx: click.Context) -> None:
    """List all rate limits."""
    installation = ctx.with_resource(opened())
    limits = RateLimits(installation.database, installation.control).list_limits()
    rows = [
        (limit.scope, "each" if limit.subject == EACH else limit.subject, limit.amount, NAMES[limit.kind])
        for limit in limits
    ]
    print_table(("SCOPE", "SUBJECT", "AMOUNT", "OF"), rows, "There are no rate limits.")


def _check_model(installation: Installation, subject: str) -> None:
    """Warn about an unknown model; it may belong to an organization's custom provider."""
    catalogue = installation.catalogue
    if catalogue.find(subject) is None:
        say(f"Warning: the catalogue has no model {subject}{near(subject, catalogue.models)}")


def _check_project(installation: Installation, subject: str) -> None:
    check_scope(installation, project=subject)


def _check_key(installation: Installation, subject: str) -> None:
    keys.find(installation.database, subject)


def _check_operation(installation: Installation, subject: str) -> None:
    organization, _, operation = subject.rpartition("/")
    check_scope(installation, organization)
    if operation not in operations.names():
        raise NotFound(f"There is no operation {operation}{near(operation, operations.names())}")


CHECKS: dict[str, Callable[[Installation, str], object]] = {
    "organization": check_scope,
    "project": _check_project,
    "key": _check_key,
    "model": _check_model,
    "operation": _check_operation,
}


def _subject(text: str) -> str:
    if text == "each":
        return EACH
    return text


def _change(installation: Installation, scope: str, subject: str, kinds: tuple[str, ...], amount: int | None) -> None:
    limits = RateLimits(installation.database, installation.control)

    def work(now: int) -> None:
        for kind in kinds:
            limits.write_limit(scope, subject, kind, amount)
            detail = {"scope": scope, "kind": kind, "amount": amount}
            audit.append("rate_limit.update", subject, actor=OPERATOR, at_us=now, detail=detail)

    commit(installation.database, installation.control, work)
