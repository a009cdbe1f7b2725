"""`/projects/…/rate-limits`, `/keys/api/…/rate-limits`: the rate limits that an account sets for its own projects and
keys. `/rate-limits`: those of the operator."""

from typing import Any

from gateway.accounts.keys import KeyInfo
from gateway.accounts.projects import ProjectInfo
from gateway.admin import operator_rates
from gateway.limits.rate_limits import WINDOW_S
from gateway.limits.rate_rules import CONCURRENCY, EACH_SUBJECT, KINDS, REQUESTS, SCOPES, TOKENS
from gateway.metering import usage_table
from gateway.surfaces.management.access_groups import OPERATOR, in_project, of_key
from gateway.surfaces.management.answers import OperatorRateAnswer, RateAnswer, RateLimitsAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBody, TextField, WholeNumber
from gateway.surfaces.web.http import Operation

TAG = "Rate limits"
MAX_LIMIT = 1_000_000_000
NAMES = {REQUESTS: "requestsPerMinute", TOKENS: "tokensPerMinute", CONCURRENCY: "concurrentRequests"}


class RateChange(StrictBody):
    """Absent members stay unchanged, null removes the limit, 0 blocks."""

    requestsPerMinute = WholeNumber(0, MAX_LIMIT, allow_none=True)
    tokensPerMinute = WholeNumber(0, MAX_LIMIT, allow_none=True)
    concurrentRequests = WholeNumber(0, MAX_LIMIT, allow_none=True)


def find_of_project(call: ManagedCall[ProjectInfo]) -> RateLimitsAnswer:
    """The project's own limits, the operator's, and what was used in the last minute."""
    return _show(call, "project")


def find_of_key(call: ManagedCall[KeyInfo]) -> RateLimitsAnswer:
    """The key's own limits, the operator's, and what was used in the last minute."""
    return _show(call, "key")


def change_of_project(call: ManagedCall[ProjectInfo]) -> RateLimitsAnswer:
    """Set or remove the project's own limits, never above the operator's; in force everywhere when this returns."""
    return _change(call, "project", call.visitor.manages("projects:write", call.subject.organization_id))


def change_of_key(call: ManagedCall[KeyInfo]) -> RateLimitsAnswer:
    """Set or remove the key's own limits, never above the operator's; in force everywhere when this returns."""
    return _change(call, "key", call.visitor.manages("keys:restrict", call.subject.organization_id))


def _change(call: ManagedCall[Any], scope: str, is_manager: bool) -> RateLimitsAnswer:
    amounts = {kind: call.fields[name] for kind, name in NAMES.items() if name in call.fields}
    subject = call.subject
    operator_rates.change_account_rates(
        *call.stores,
        call.services.billing.rate_limits,
        (scope, subject.id),
        subject.organization_id,
        amounts,
        actor=call.actor,
        is_manager=is_manager,
    )
    return _show(call, scope)


def _show(call: ManagedCall[Any], scope: str) -> RateLimitsAnswer:
    subject_id = call.subject.id
    billing = call.services.billing
    requests, tokens = usage_table.count(call.database, scope, subject_id, WINDOW_S)
    running = billing.settlements.rates.running_of(scope, subject_id)
    used = {REQUESTS: requests, TOKENS: tokens, CONCURRENCY: running}
    rates = {
        kind: RateAnswer(rate.own, rate.operators, rate.in_force, used[kind])
        for kind, rate in billing.rate_limits.of(scope, subject_id).items()
    }
    return RateLimitsAnswer(*(rates[kind] for kind in NAMES))


OF_PROJECT = "/projects/<project_id>/rate-limits"
OF_KEY = "/keys/api/<key_id>/rate-limits"
UPDATED = operator_rates.ACTION


EACH_WORD = "each"  # the subject of a limit for each subject of its scope
SUBJECT_DESCRIPTION = "An id, a model, an operation or organization/operation; each: every one in the scope separately."


class RateKind(StrictBody):
    kind = OneOf(KINDS, about="Default: every kind.")


class NewRate(StrictBody):
    """requests and tokens are per minute; concurrency is the number of simultaneous requests."""

    scope = OneOf(SCOPES, required=True, example="model")
    subject = TextField(1, 255, required=True, about=SUBJECT_DESCRIPTION, example="gpt-4o-mini")
    kind = OneOf(KINDS, required=True)
    amount = WholeNumber(0, MAX_LIMIT, required=True)


def list_rates(call: ManagedCall[str]) -> list[OperatorRateAnswer]:
    """Every rate limit, also those that accounts set for their own projects and keys."""
    rules = call.services.billing.rate_limits.list_limits()
    return [OperatorRateAnswer(rule.scope, _show_subject(rule.subject), rule.kind, rule.amount) for rule in rules]


def set_rate(call: ManagedCall[str]) -> OperatorRateAnswer:
    """Limit the requests per minute, the tokens per minute or the concurrency of a subject; 0 blocks it. In force
    everywhere when this returns. A limit for an operation (chat, embeddings) applies to each organization."""
    fields = call.fields
    subject = _read_subject(fields["subject"])
    catalogue = call.services.routing.catalogue.current()
    place = (fields["scope"], subject)
    warning = operator_rates.check_subject(call.database, catalogue, place)
    rates = {fields["kind"]: fields["amount"]}
    operator_rates.change(*call.stores, call.services.billing.rate_limits, place, rates, actor=call.actor)
    return OperatorRateAnswer(fields["scope"], fields["subject"], fields["kind"], fields["amount"], warning)


def remove_rate(call: ManagedCall[str]) -> None:
    """Remove a limit of a subject, or all of its limits."""
    place = (call.params["scope"], _read_subject(call.params["subject"]))
    kinds = [call.fields["kind"]] if "kind" in call.fields else KINDS
    removed = dict.fromkeys(kinds, None)
    operator_rates.change(*call.stores, call.services.billing.rate_limits, place, removed, actor=call.actor)


def _read_subject(text: str) -> str:
    return EACH_SUBJECT if text == EACH_WORD else text


def _show_subject(subject: str) -> str:
    return EACH_WORD if subject == EACH_SUBJECT else subject


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", OF_PROJECT, find_of_project, "Show a project's rate limits", tag=TAG,
            who=in_project("project_rates:read"), scope="projects:read",
            inside="rateLimits"),
    managed("PATCH", OF_PROJECT, change_of_project, "Set a project's rate limits", tag=TAG,
            who=in_project("projects:write"), scope="projects:write",
            request=RateChange, inside="rateLimits", audit=UPDATED),
    managed("GET", OF_KEY, find_of_key, "Show an API key's rate limits", tag=TAG,
            who=of_key("keys:read"), scope="keys:read",
            inside="rateLimits"),
    managed("PATCH", OF_KEY, change_of_key, "Set an API key's rate limits", tag=TAG,
            who=of_key("keys:restrict"), scope="keys:write",
            request=RateChange, inside="rateLimits", audit=UPDATED),
    managed("GET", "/rate-limits", list_rates, "List all rate limits", tag=TAG, who=OPERATOR,
            inside="rateLimits", commands=("rates show",)),
    managed("PUT", "/rate-limits", set_rate, "Set a rate limit of the operator", tag=TAG, who=OPERATOR,
            request=NewRate, inside="rateLimit", audit=operator_rates.ACTION,
            commands=("rates set <scope> <subject> <kind> <amount> | scope subject amount kind warning",)),
    managed("DELETE", "/rate-limits/<scope>/<path:subject>", remove_rate, "Remove rate limits of the operator",
            tag=TAG, who=OPERATOR, query=RateKind, message="Rate limits removed.", audit=operator_rates.ACTION,
            commands=("rates clear <scope> <subject> <kind?>",)),
)  # fmt: skip
