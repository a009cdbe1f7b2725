"""The turn before a request: the retained one of its session, or of its key, with the beginning of its prompt."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.clock import HOUR_US
from gateway.errors import GatewayError
from gateway.metering.log.archived_requests import search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.prompt_changes import PromptDifference, compare_payloads
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.visitor import Visitor

CHAT = "chat"
MAX_CANDIDATES = 6
MAX_READ_BYTES = 12_000_000  # of all candidates
NEAR_US = HOUR_US  # a conversation without a session continues within this time
INLINE_BYTES = 32_768  # beyond it, payloads are compared in a thread


class EarlierTurn(NamedTuple):
    """The turn before a request, and the differences between both prompts."""

    request: LoggedRequest
    difference: PromptDifference


def find_turn_before(visitor: Visitor, request: LoggedRequest) -> EarlierTurn | None:
    """Return the turn that a request continues, of those that the visitor may see: the one with which its prompt shares
    the longest beginning, because sub-agents take turns within a session. None without a retained one."""
    if request.payload is None or request.operation != CHAT:
        return None
    sent = visitor.services.engine.retention.read(request.payload).sent
    best: EarlierTurn | None = None
    room = MAX_READ_BYTES
    for candidate in _list_candidates(visitor, request):
        difference = compare_requests(visitor, candidate, sent)
        room -= len(sent) + (candidate.payload.sent_bytes if candidate.payload else 0)
        if difference is None or not (request.session or difference.kept_tokens):
            continue
        if best is None or difference.kept_tokens > best.difference.kept_tokens:
            best = EarlierTurn(candidate, difference)
        if difference.is_continued or room < 0:
            break
    return best


def compare_requests(visitor: Visitor, earlier: LoggedRequest, sent: bytes) -> PromptDifference | None:
    """Return the differences of a request that was `sent` to an earlier one, None without a conversation of both."""
    if earlier.payload is None:
        return None
    try:
        before = visitor.services.engine.retention.read(earlier.payload).sent
    except GatewayError:  # it was deleted meanwhile
        return None
    return compute_if(len(before) + len(sent) > INLINE_BYTES, compare_payloads, before, sent)


def _list_candidates(visitor: Visitor, request: LoggedRequest) -> Sequence[LoggedRequest]:
    """Return retained requests before this one, newest first."""
    project_id = f"proj_{request.owner.project.hex()}"
    if request.session:
        scopes = request_log_reader_module.scopes_of(visitor, project_id)
        filters = LogFilter(session=request.session)
    else:
        scopes = request_log_reader_module.scopes_of(visitor, project_id, f"key_{request.owner.api_key.hex()}")
        filters = LogFilter(retained=True, from_us=request.at_us - NEAR_US)
    if not scopes:
        return []
    page = search_log(visitor.services.store.database, scopes, filters, request.request, 2 * MAX_CANDIDATES)
    retained = [one for one in page.requests if one.payload is not None and one.operation == CHAT]
    return retained[:MAX_CANDIDATES]
