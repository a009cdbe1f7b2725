"""`/rate-limits`: the operator's rate limits."""

from gateway.admin import operator_rates
from gateway.limits.rate_rules import EACH_SUBJECT, KINDS, SCOPES
from gateway.surfaces.management.access_groups import OPERATOR
from gateway.surfaces.management.answers import OperatorRateAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBody, TextField, WholeNumber
from gateway.surfaces.web.http import Operation

TAG = "Rate limits"
MAX_LIMIT = 1_000_000_000
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
    managed("GET", "/rate-limits", list_rates, "List all rate limits", tag=TAG, who=OPERATOR,
            inside="rateLimits", commands=("rates show",)),
    managed("PUT", "/rate-limits", set_rate, "Set a rate limit of the operator", tag=TAG, who=OPERATOR,
            request=NewRate, inside="rateLimit", audit=operator_rates.ACTION,
            commands=("rates set <scope> <subject> <kind> <amount> | scope subject amount kind warning",)),
    managed("DELETE", "/rate-limits/<scope>/<path:subject>", remove_rate, "Remove rate limits of the operator",
            tag=TAG, who=OPERATOR, query=RateKind, message="Rate limits removed.", audit=operator_rates.ACTION,
            commands=("rates clear <scope> <subject> <kind?>",)),
)  # fmt: skip
