"""The models of a request besides the requested one, and the preferences among providers that its headers set."""

from typing import TypeVar

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.neutral.request import Request

R = TypeVar("R", bound=Request)


def with_choice(context: RequestContext, request: R) -> R:
    """Return the request with the models and preferences of the caller's headers; those of its body take precedence."""
    if not context.choice:
        return request
    changes = {name: value for name, value in context.choice.items() if not getattr(request.options, name)}
    return replace(request, options=request.options.with_changes(**changes))


def only_model(request: Request, model: str) -> Request:
    """Return the request for one of its models."""
    return replace(request, requested_model=model, options=request.options.with_changes(models=()))
