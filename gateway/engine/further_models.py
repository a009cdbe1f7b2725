"""The models of a request besides the requested one: read from the caller's header, and planned one at a time."""

from typing import TypeVar

from msgspec.structs import replace

from gateway.billing.context import MODELS_HEADER, RequestContext
from gateway.errors import InvalidRequest
from gateway.neutral.request import MOST_MODELS, Request

R = TypeVar("R", bound=Request)


def with_models(context: RequestContext, request: R) -> R:
    """Return the request with the further models that the caller's header names, unless its body names some. Raises
    InvalidRequest for too many."""
    if request.options.models or not context.models:
        return request
    names = tuple(name for text in context.models.split(",") if (name := text.strip()))
    if len(names) > MOST_MODELS:
        message = f"The header {MODELS_HEADER} names {len(names)} models; the limit is {MOST_MODELS}."
        raise InvalidRequest(message, param=MODELS_HEADER)
    return replace(request, options=request.options.with_changes(models=names))


def only_model(request: Request, model: str) -> Request:
    """Return the request for one of its models."""
    return replace(request, requested_model=model, options=request.options.with_changes(models=()))
