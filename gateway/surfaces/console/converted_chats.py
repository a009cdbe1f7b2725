"""Logged chats of every API as chat completions: for the playground, and to compare two of different APIs."""

from typing import Any

from gateway.callers.authentication import Caller
from gateway.errors import InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.page_calls import PageCall
from gateway.surfaces.openai.chat_prompts import write_chat
from gateway.surfaces.visitors import resent_requests

CHAT_PATH = "/chat/completions"
INLINE_BYTES = 32_768  # beyond it, a chat is converted in a thread
NO_CHAT = "this request is not a chat"


def read_chat(call: PageCall, caller: Caller, request: LoggedRequest) -> tuple[dict[str, Any], list[str]]:
    """Return a chat as the body of a chat completion, and notes on what of it is left out. InvalidRequest with the
    reason for one that cannot be read; Unavailable."""
    services = call.services
    if request.path.endswith(CHAT_PATH):
        return resent_requests.read_sent(services, request), []
    resent = resent_requests.prepare(services, request, request.asked)
    read = resent_requests.port_of(services).read(caller, resent, call.inbound.base_url, call.inbound.peer)
    if not isinstance(read.request, ChatRequest):
        raise read.error or InvalidRequest(NO_CHAT)
    size = request.payload.sent_bytes if request.payload is not None else 0
    return compute_if(size > INLINE_BYTES, write_chat, read.request)


def have_one_api(call: PageCall, one: LoggedRequest, other: LoggedRequest) -> bool:
    """Return whether two requests are in the same format, whatever their models."""
    port = resent_requests.port_of(call.services)
    if one.path == other.path or not (port.can_resend(one.path) and port.can_resend(other.path)):
        return True
    same, second = (port.retarget(request.path, {}, "model") for request in (one, other))
    return (same.path, same.headers) == (second.path, second.headers)
