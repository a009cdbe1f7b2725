"""Answers without content that are no failure."""

from gateway.errors import EmptyAnswer, GatewayError
from gateway.neutral.chat import ChatRequest, FinishReason
from gateway.neutral.request import Request

ENDS: dict[str, FinishReason] = {"stop": "stop", "stop_sequence": "stop_sequence"}


def meant_end(error: GatewayError, request: Request) -> FinishReason | None:
    """Return the finish reason of an empty answer that the request allows, because the first text may be one of its
    stop sequences; None for any other error."""
    if not isinstance(error, EmptyAnswer) or not isinstance(request, ChatRequest):
        return None
    return ENDS.get(error.finish) if request.conversation().sampling.stop else None
