"""Adapts a request to its target: unsupported options are lowered or omitted, each with a warning to the caller.

routing/capabilities lists which options may be dropped (SOFT). An adapted request has no native body, since only its
neutral form is changed; a lower output limit changes nothing in the request, because it is passed on with the target.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    Effort,
    ReasoningOptions,
    Requirements,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parameters import ALL_EFFORTS, PARAMETERS, Parameter, nearest
from gateway.neutral.parts import Image, Message, Video
from gateway.neutral.request import FEATURES, TIERS_JOINED, Request
from gateway.routing.candidates import Candidate
from gateway.routing.capabilities import (
    EARLIER_IMAGES,
    EFFORT,
    FULL,
    HOSTED,
    IMAGE_OUTPUT,
    MARKS,
    OFFERED_SEARCH,
    OUTPUT,
    OWN_PARTS,
    REASONING,
    ROOM,
    SPLIT,
    TIER,
)

# Bytes per token in limits that must not be too high: code has fewer than prose.
MIN_BYTES_PER_TOKEN = 3
MIN_OUTPUT_TOKENS = 1024  # tokens requested when the prompt, by its size, leaves no room
TOOL_SEARCH = "tool_search"  # optional at every vendor: without it all tools are available
IMAGES = frozenset((EARLIER_IMAGES, IMAGE_OUTPUT))  # no native body is changed for these
LIMITS = frozenset((OUTPUT, ROOM, FULL, MARKS, SPLIT, OWN_PARTS))  # leave the request itself unchanged
# The parameters that need a capability, with its name.
CAPABILITY_PARAMETERS = tuple((row.capability.name, row) for row in PARAMETERS.values() if row.capability is not None)
INNER = frozenset((HOSTED, OFFERED_SEARCH, *(name for name, _ in CAPABILITY_PARAMETERS)))


class Fitting:
    """The options of a plan's request that a mapping lacks, and the adapted request.

    `effort` is the reasoning effort added by automatic model selection ("": none).
    """

    __slots__ = ("_ability", "_effort", "_key", "_lacking", "_offered")

    def __init__(self, candidate: Candidate, lacking: tuple[str, ...], effort: str) -> None:
        self._ability = candidate.ability
        self._key = candidate.key
        self._offered = candidate.mapping.reasoning_efforts
        self._lacking = frozenset(lacking)
        self._effort = effort

    def limit(self, request: Request) -> int | None:
        """Return the output limit to send when it is below the caller's, else None."""
        requested = request.requirements.max_tokens
        if requested is None or not (OUTPUT in self._lacking or ROOM in self._lacking):
            return None
        limit = min(requested, self._ability.max_output)
        if ROOM in self._lacking:
            room = self._ability.context - request.requirements.prompt_bytes // MIN_BYTES_PER_TOKEN
            limit = min(limit, max(room, MIN_OUTPUT_TOKENS))
        if limit < requested:
            return limit
        return None

    def choices_a_call(self, request: Request) -> int:
        """Return how many answers one call gives when the caller wants more of them, 0 when one call suffices."""
        if SPLIT not in self._lacking:
            return 0
        if request.requirements.stream:
            return self._ability.max_streamed_n
        return self._ability.max_n

    def fit(self, request: Request) -> Request:
        """Return the request for the mapping, with a warning for each option that was dropped."""
        warnings = (*request.warnings, *self._warn(request))
        if not isinstance(request, ChatRequest) or (self._lacking <= LIMITS and not self._effort):
            if warnings:
                return replace(request, warnings=warnings)
            return request
        options = request.options
        if TIER in self._lacking:
            options = replace(options, service_tier=TIERS_JOINED.join(self._tiers(options.service_tier, True)))
        if IMAGE_OUTPUT in self._lacking:
            options = replace(options, image_config=None)
        native = request.native
        if native is not None:
            native = None if IMAGES & self._lacking else replace(native, adapted=True)
        return request.with_conversation(
            partial(self._change, request.conversation),
            requirements=self._change_requirements(request.requirements),
            options=options,
            native=native,
            warnings=warnings,
        )

    def _tiers(self, requested: str, supported: bool) -> list[str]:
        """Return the requested service tiers that are kept, or those that are dropped.

        When the mapping offers all of them, the credential offers none.
        """
        names = requested.split(TIERS_JOINED)
        offered = self._ability.tiers
        if offered.issuperset(names):
            offered = frozenset()
        return [name for name in names if (name in offered) is supported]

    def _dropped(self) -> list[Parameter]:
        """Return the parameters that need a capability which the mapping lacks."""
        return [row for name, row in CAPABILITY_PARAMETERS if name in self._lacking]

    def _effort_for(self, effort: str) -> str:
        return nearest(effort, self._offered)

    def _change_requirements(self, requirements: Requirements) -> Requirements:
        changes: dict[str, Any] = {"parameters": requirements.parameters - self._lacking}
        if REASONING in self._lacking:
            changes |= {"reasoning": False, "effort": ""}
        elif self._effort or EFFORT in self._lacking:
            changes["effort"] = self._effort or self._effort_for(requirements.effort)
        for reason, change in REQUIREMENTS_WITHOUT.items():
            if reason in self._lacking:
                changes |= change
        return replace(requirements, **changes)

    def _change(self, read: Callable[[], Conversation]) -> Conversation:
        conversation = read()
        lacking = self._lacking
        if REASONING in lacking:
            conversation = replace(conversation, reasoning=ReasoningOptions())
            conversation = _sampled(conversation, output_effort="")
        elif self._effort:
            conversation = replace(conversation, reasoning=replace(conversation.reasoning, effort=_word(self._effort)))
        elif EFFORT in lacking:
            conversation = self._lower_effort(conversation)
        dropped = {row.name: row.default for row in self._dropped()}
        if dropped:
            conversation = _sampled(conversation, **dropped)
        if HOSTED in lacking or OFFERED_SEARCH in lacking:
            conversation = self._without_tools(conversation)
        if EARLIER_IMAGES in lacking:
            messages = tuple(_without_earlier_images(message) for message in conversation.messages)
            conversation = replace(conversation, messages=messages)
        return conversation

    def _lower_effort(self, conversation: Conversation) -> Conversation:
        reasoning = conversation.reasoning
        sampling = conversation.sampling
        if reasoning.effort:
            effort = _word(self._effort_for(reasoning.effort))
            conversation = replace(conversation, reasoning=replace(reasoning, effort=effort))
        if sampling.output_effort:
            conversation = _sampled(conversation, output_effort=self._effort_for(sampling.output_effort))
        return conversation

    def _without_tools(self, conversation: Conversation) -> Conversation:
        tools = tuple(tool for tool in conversation.tools if not self._drops(tool))
        choice: ToolChoice | None = conversation.tool_choice if tools else None
        return replace(conversation, tools=tools, tool_choice=choice)

    def _drops(self, tool: Tool) -> bool:
        if isinstance(tool, WebSearch):
            return OFFERED_SEARCH in self._lacking
        return (
            HOSTED in self._lacking
            and isinstance(tool, VendorTool)
            and tool.kind != TOOL_SEARCH
            and not tool.instead
            and tool.vendor not in (self._ability.dialect, self._ability.second)
        )

    def _warn(self, request: Request) -> Iterator[str]:
        """Yield the warnings, each beginning with the field's name in chat completions."""
        lacking = self._lacking
        key = self._key
        limit = self.limit(request)
        if limit is not None:
            why = "its highest limit" if limit == self._ability.max_output else "the rest of its context"
            yield f"max_tokens was lowered to {limit} for {key}: {why}."
        if REASONING in lacking:
            field = "reasoning_effort" if request.requirements.effort else "reasoning"
            yield f"{field} was left out: {key} does not reason."
        elif EFFORT in lacking:
            effort = request.requirements.effort
            yield f"reasoning_effort {effort} was replaced by {self._effort_for(effort)}, the nearest one of {key}."
        if TIER in lacking:
            for name in self._tiers(request.options.service_tier, False):
                yield f"service_tier {name} was left out: {key} does not offer it."
        for feature in FEATURES.values():
            if feature.dropped and feature.reason in lacking:
                yield feature.dropped.format(key)
        if not lacking.isdisjoint(INNER) and isinstance(request, ChatRequest):
            yield from self._warn_of(request.conversation())

    def _warn_of(self, conversation: Conversation) -> Iterator[str]:
        """Yield the warnings that need names from the conversation."""
        for row in self._dropped():
            if row.is_given(getattr(conversation.sampling, row.name)):
                yield f"{row.field} was left out: {self._key} does not support it."
        for kind in dict.fromkeys(_kind(tool) for tool in conversation.tools if self._drops(tool)):
            yield f"tools: {kind} was left out: {self._key} has no such tool."


def _kind(tool: Tool) -> str:
    if isinstance(tool, VendorTool):
        return tool.kind
    return "web_search"


def _without_earlier_images(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, parts=tuple(part for part in message.parts if not isinstance(part, Image | Video)))


def _sampled(conversation: Conversation, **changes: Any) -> Conversation:
    return replace(conversation, sampling=replace(conversation.sampling, **changes))


# Reason → the requirements of a request without the feature.
REQUIREMENTS_WITHOUT: dict[str, dict[str, Any]] = {
    EARLIER_IMAGES: {"earlier_images": False},
    HOSTED: {"hosted": ""},
    IMAGE_OUTPUT: {"image_output": False},
    OFFERED_SEARCH: {"web_search": False, "search_offered": False},
}


def _word(effort: str) -> Effort | Literal[""]:
    """Return an effort in the neutral form; "" for an effort without a neutral name."""
    return next((word for word in ALL_EFFORTS if word == effort), "")
