"""Writes a neutral answer as a response object: the complete one, and its intermediate states in a stream."""

from collections.abc import Callable
from typing import Any, Final, Literal
from typing import Protocol as Interface

from gateway.billing.context import Attempt
from gateway.clock import SECOND_US
from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.events import (
    BlockDone,
    Event,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Text, ToolCall, VendorPart
from gateway.neutral.usage import Usage
from gateway.runtime.threads import compute_if
from gateway.surfaces.responses.assembler import COMPLETED, INCOMPLETE, RUNNING, Assembler
from gateway.surfaces.responses.opaque_tokens import seal_summary, wrap
from gateway.surfaces.responses.reader import ResponseTurn
from gateway.surfaces.responses.response_answers import (
    Penalties,
    ResponseEvent,
    ResponseItem,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
)
from gateway.surfaces.responses.store import item_id, show
from gateway.surfaces.web.facts import AnswerFacts

# The answer to a request for a compaction (`compaction_trigger`): its text as one sealed item, as the server of this
# dialect writes it. Each model can read it in a later request.

NO_SUMMARY = "The provider returned no summary."
COMPACTION = "compaction"


class CompactionAssembler(Assembler):
    """Collects the text of an answer and shows it when it ends. A server of this dialect sends the item itself."""

    _summary = ""

    def add(self, event: Event) -> list[ResponseEvent]:
        if isinstance(event, TextDelta):
            self._summary += event.text
        elif isinstance(event, PartFound) and _is_compaction(event):
            return super().add(event)
        return []

    def finish(self, status: str) -> list[ResponseEvent]:
        """Return the events of the item; a summary that was cut is none. Raises UpstreamFailed for an empty answer."""
        if self.items or status != COMPLETED:
            return []
        summary = self._summary.strip()
        if not summary:
            raise UpstreamFailed(NO_SUMMARY)
        return self.add_whole({"type": COMPACTION, "encrypted_content": seal_summary(summary)})


def _is_compaction(event: PartFound) -> bool:
    part = event.part
    return isinstance(part, VendorPart) and part.vendor == dialect.NAME and part.kind == COMPACTION


FAILED: Final = "failed"
NO_PENALTIES: Penalties = {"frequency_penalty": 0.0, "presence_penalty": 0.0}
THREAD_ITEMS = 500  # items; a response with more is prepared in a thread
Json = dict[str, Any]
# Stores a complete response, if its request enabled that, before the caller sees its end; returns whether it is stored.
Keep = Callable[[ResponseObject], bool]


class RequestFacts(Interface):
    """The facts in a response of which nothing was generated yet."""

    @property
    def answer_id(self) -> str: ...

    @property
    def created(self) -> int: ...

    @property
    def requested_model(self) -> str: ...

    @property
    def service_tier(self) -> str: ...


class ResponseFacts(AnswerFacts, Interface):
    """The facts in a response besides its content. `answer_id` is "resp_…", `requested_model` the model as the caller
    wrote it. `serving` is known when the first piece of the content has arrived."""

    @property
    def requested_model(self) -> str: ...

    @property
    def serving(self) -> Attempt: ...


def reply(result: ChatResult, turn: ResponseTurn, facts: ResponseFacts, keep: Keep) -> ResponseObject:
    """Return the response object of a complete result, stored if the request enabled storing."""
    choice = result.choices[0]
    if result.native is not None:
        native = result.native.body
        output = compute_if(result.large, _own_items, native["output"], facts)
        return conclude(turn, facts, output, choice.finish, keep, native)
    output = compute_if(result.large, _output, choice, turn, facts, status_of(choice.finish))
    return conclude(turn, facts, output, choice.finish, keep)


def conclude(
    turn: ResponseTurn,
    facts: ResponseFacts,
    output: list[ResponseItem],
    finish: FinishReason,
    keep: Keep,
    native: Json | None = None,
) -> ResponseObject:
    """Keep the response and return it as the caller sees it. `native` is the upstream's relayed response."""
    response = write_response(turn, facts, status_of(finish), output)
    reason = dialect.INCOMPLETE_WRITE.get(finish)
    if reason is not None:
        response["incomplete_details"] = {"reason": reason}
    if native:
        _keep_own(response, native)
    if response["status"] == COMPLETED and response["completed_at"] is None:
        response["completed_at"] = _end_of(facts)
    response["usage"] = write_usage(facts)
    response["llmgateway"] = facts.metadata()
    response["store"] = keep(response)
    shown: ResponseObject = compute_if(
        len(output) >= THREAD_ITEMS, show, response, sealed=turn.sealed, reasoned=turn.reasoned
    )
    return shown


def _end_of(facts: ResponseFacts) -> int:
    """Return the second in which the answer was complete; one from the cache was before its request."""
    attempt = facts.serving
    return max(facts.created, (attempt.at_us + attempt.duration_ms * 1000) // SECOND_US)


def _keep_own(response: Any, native: Json) -> None:
    """Add the members that only the upstream's response has: defaults of absent fields, and how it ended."""
    for name in dialect.OWN_MEMBERS:
        if native.get(name) is not None and response.get(name) is None:
            response[name] = native[name]
    if native.get("status") == INCOMPLETE and native.get("incomplete_details"):
        response |= {"status": INCOMPLETE, "incomplete_details": native["incomplete_details"]}


def write_usage(facts: ResponseFacts) -> ResponseUsage:
    """Return `usage` with its cost in US dollars."""
    return {**dialect.write_usage(facts.usage), **facts.cost()}


def write_response(
    turn: ResponseTurn, facts: RequestFacts, status: ResponseStatus, output: list[ResponseItem]
) -> ResponseObject:
    """Return a response object (response.py of the OpenAI SDK) without usage."""
    tier = facts.service_tier
    return {
        "id": facts.answer_id,
        "object": "response",
        "created_at": facts.created,
        "completed_at": None,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": facts.requested_model,
        "output": output,
        **NO_PENALTIES,
        **turn.echo,
        "service_tier": tier if tier in dialect.TIERS else "default",
        "store": turn.store,
        "usage": None,
    }


def opening(turn: ResponseTurn, facts: ResponseFacts) -> ResponseObject:
    """Return the response as it looks at its beginning."""
    return write_response(turn, facts, RUNNING, [])


def failure(
    turn: ResponseTurn, facts: ResponseFacts, error: GatewayError, output: list[ResponseItem], usage: Usage | None
) -> ResponseObject:
    """Return the response as it looks after a failure."""
    response = write_response(turn, facts, FAILED, output)
    response["error"] = {"code": dialect.error_code(error), "message": error.message}
    if usage is not None:
        response["usage"] = dialect.write_usage(usage)
    shown: ResponseObject = show(response, sealed=turn.sealed, reasoned=turn.reasoned)
    return shown


def status_of(finish: FinishReason) -> Literal["completed", "incomplete"]:
    if finish in dialect.INCOMPLETE_WRITE:
        return INCOMPLETE
    return COMPLETED


def origin(facts: ResponseFacts) -> str:
    """Return the account that served, by the name in opaque tokens."""
    target = facts.serving.target
    return dialect.origin_of(target.provider.id, target.credential.ident)


def own_item(item: Json, place: int, facts: ResponseFacts) -> ResponseItem:
    """Return an upstream's item with an id of the gateway, its encrypted content wrapped."""
    own: Any = wrap({**item, "id": item_id(item.get("type", ""), facts.answer_id, place)}, origin(facts))
    written: ResponseItem = own
    return written


def _own_items(items: list[Json], facts: ResponseFacts) -> list[ResponseItem]:
    return [own_item(item, place, facts) for place, item in enumerate(items)]


def assembler_of(turn: ResponseTurn, facts: ResponseFacts) -> Assembler:
    """Return the assembler of an answer that comes from a server of another dialect."""
    kind = CompactionAssembler if turn.compacts else Assembler
    return kind(facts.answer_id, turn.names, origin(facts), turn.own)


def _output(choice: Choice, turn: ResponseTurn, facts: ResponseFacts, status: str) -> list[ResponseItem]:
    """Return the parts of a result as items, equal to those of its stream."""
    assembler = assembler_of(turn, facts)
    for block, part in enumerate(choice.parts):
        for event in _events(part, block):
            assembler.add(event)
    assembler.finish(status)
    return assembler.items


def _events(part: Part, block: int) -> list[Event]:
    match part:
        case Text():
            events: list[Event] = [TextDelta(part.text, block, signature=part.signature, vendor=part.vendor)]
            return events + [SourceFound(source, block) for source in part.sources]
        case Refusal():
            return [RefusalDelta(part.text, block)]
        case Reasoning():
            delta = ReasoningDelta(part.text, part.signature, part.sealed, part.vendor, part.ident, part.summary, block)
            return [delta, BlockDone(block)]
        case ToolCall():
            return [
                ToolCallDelta(
                    block, part.arguments, part.id, part.name, part.signature, part.vendor, part.executed, part.custom
                )
            ]
        case Image() | VendorPart():
            return [PartFound(part, block)]
        case _:
            return []
