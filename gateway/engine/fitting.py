"""Adapts a request to its target: unsupported options are lowered or left out, each with a warning to the caller.

routing/capabilities lists which options may be dropped (SOFT). An adapted request has no native body, since it is
changed in the neutral form only; a lower output limit needs no change, because it is passed on with the target.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

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
from gateway.neutral.efforts import nearest
from gateway.neutral.request import TIERS_JOINED, Request
from gateway.routing.candidates import Candidate
from gateway.routing.capabilities import (
    EFFORT,
    FULL,
    HOSTED,
    IMAGE_OUTPUT,
    MARKS,
    OFFERED_SEARCH,
    OUTPUT,
    PARALLEL,
    PENALTIES,
    REASONING,
    ROOM,
    SPLIT,
    TIER,
    VERBOSITY,
)

# Bytes per token where a limit must not be too high; code has fewer than prose.
FEWEST_BYTES_PER_TOKEN = 3
LEAST_ROOM = 1024  # requested when the prompt, by its size, leaves nothing
TOOL_SEARCH = "tool_search"  # optional at every vendor: without tool search all tools are simply available
LIMITS = frozenset((OUTPUT, ROOM, FULL, MARKS, SPLIT))  # leave the request itself unchanged
INNER = (PENALTIES, HOSTED, OFFERED_SEARCH)
EFFORTS: tuple[Effort, ...] = get_args(Effort)
REASONING_FIELDS = ("reasoning_effort", "reasoning")

Change = Callable[[Conversation], Conversation]


class Fitting:
    """What a mapping lacks for a plan's request, and how the request is adapted to it.

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
        """The output limit to send instead of the caller's higher one; None where theirs is fine."""
        wanted = request.requirements.max_tokens
        if wanted is None or not (OUTPUT in self._lacking or ROOM in self._lacking):
            return None
        limit = min(wanted, self._ability.max_output)
        if ROOM in self._lacking:
            room = self._ability.context - request.requirements.prompt_bytes // FEWEST_BYTES_PER_TOKEN
            limit = min(limit, max(room, LEAST_ROOM))
        if limit < wanted:
            return limit
        return None

    def choices_a_call(self, request: Request) -> int:
        """How many answers one call gives, where the caller wants more of them; 0 where one call will do."""
        if SPLIT not in self._lacking:
            return 0
        if request.requirements.stream:
            return self._ability.max_streamed_n
        return self._ability.max_n

    def fit(self, request: Request) -> Request:
        """The request as the mapping gets it, with a warning for each option that was dropped."""
        warnings = (*request.warnings, *self._warn(request))
        if not isinstance(request, ChatRequest) or (self._lacking <= LIMITS and not self._effort):
            if warnings:
                return replace(request, warnings=warnings)
            return request
        read = request.conversation
        options = request.options
        if TIER in self._lacking:
            options = replace(options, service_tier=TIERS_JOINED.join(self._tiers(options.service_tier, True)))
        if IMAGE_OUTPUT in self._lacking:
            options = replace(options, image_config=None)
        return request.with_conversation(
            lambda: self._change(read()),
            requirements=self._change_needs(request.requirements),
            options=options,
            native=None,
            warnings=warnings,
        )

    def _tiers(self, asked: str, kept: bool) -> list[str]:
        """Of the service tiers that were asked for at once those that are kept, or left out: where the mapping offers
        all of them, it is the credential that has none."""
        names = asked.split(TIERS_JOINED)
        offered = self._ability.tiers
        if offered.issuperset(names):
            offered = frozenset()
        return [name for name in names if (name in offered) is kept]

    def _effort_for(self, effort: str) -> str:
        return nearest(effort, self._offered)

    def _change_needs(self, needs: Requirements) -> Requirements:
        changes: dict[str, Any] = {}
        if REASONING in self._lacking:
            changes |= {"reasoning": False, "effort": ""}
        elif self._effort or EFFORT in self._lacking:
            changes["effort"] = self._effort or self._effort_for(needs.effort)
        for reason, change in NEEDS.items():
            if reason in self._lacking:
                changes |= change
        return replace(needs, **changes)

    def _change(self, conversation: Conversation) -> Conversation:
        lacking = self._lacking
        if REASONING in lacking:
            conversation = replace(conversation, reasoning=ReasoningOptions())
            conversation = _sampled(conversation, output_effort="")
        elif self._effort:
            conversation = replace(conversation, reasoning=replace(conversation.reasoning, effort=_word(self._effort)))
        elif EFFORT in lacking:
            conversation = self._lower_effort(conversation)
        for reason, change in CHANGES.items():
            if reason in lacking:
                conversation = change(conversation)
        if HOSTED in lacking or OFFERED_SEARCH in lacking:
            conversation = self._without_tools(conversation)
        return conversation

    def _lower_effort(self, conversation: Conversation) -> Conversation:
        ask = conversation.reasoning
        sampling = conversation.sampling
        if ask.effort:
            effort = _word(self._effort_for(ask.effort))
            conversation = replace(conversation, reasoning=replace(ask, effort=effort))
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
            and tool.vendor not in (self._ability.dialect, self._ability.second)
        )

    def _warn(self, request: Request) -> Iterator[str]:
        """A warning begins with the field that it is about, by its name in chat completions."""
        lacking = self._lacking
        key = self._key
        limit = self.limit(request)
        if limit is not None:
            if limit == self._ability.max_output:
                why = "the most that it gives"
            else:
                why = "what its context has left"
            yield f"max_tokens was lowered to {limit} for {key}: {why}."
        if REASONING in lacking:
            field = REASONING_FIELDS[0 if request.requirements.effort else 1]
            yield f"{field} was left out: {key} does not reason."
        elif EFFORT in lacking:
            effort = request.requirements.effort
            yield f"reasoning_effort {effort} was taken as {self._effort_for(effort)}: {key} has no other near it."
        if TIER in lacking:
            for name in self._tiers(request.options.service_tier, False):
                yield f"service_tier {name} was left out: {key} does not offer it."
        for reason, text in TEXTS.items():
            if reason in lacking:
                yield text.format(key)
        if not lacking.isdisjoint(INNER) and isinstance(request, ChatRequest):
            yield from self._warn_of(request.conversation())

    def _warn_of(self, conversation: Conversation) -> Iterator[str]:
        """Warnings that need names from the conversation."""
        if PENALTIES in self._lacking:
            for name in ("frequency_penalty", "presence_penalty"):
                if getattr(conversation.sampling, name):
                    yield f"{name} was left out: {self._key} does not take it."
        for kind in dict.fromkeys(_kind(tool) for tool in conversation.tools if self._drops(tool)):
            yield f"tools: {kind} was left out: {self._key} has no such tool."


def _kind(tool: Tool) -> str:
    if isinstance(tool, VendorTool):
        return tool.kind
    return "web_search"


def _sampled(conversation: Conversation, **changes: Any) -> Conversation:
    return replace(conversation, sampling=replace(conversation.sampling, **changes))


NEEDS: dict[str, dict[str, Any]] = {
    VERBOSITY: {"verbosity": False},
    PARALLEL: {"parallel_tools": False},
    PENALTIES: {"penalties": False},
    HOSTED: {"hosted": ""},
    IMAGE_OUTPUT: {"image_output": False},
    OFFERED_SEARCH: {"web_search": False, "search_offered": False},
}
CHANGES: dict[str, Change] = {
    VERBOSITY: lambda talk: _sampled(talk, verbosity=""),
    PARALLEL: lambda talk: _sampled(talk, parallel_tool_calls=None),
    PENALTIES: lambda talk: _sampled(talk, frequency_penalty=None, presence_penalty=None),
}
TEXTS = {
    VERBOSITY: "verbosity was left out: {} does not take it.",
    PARALLEL: "parallel_tool_calls was left out: {} does not take it.",
    IMAGE_OUTPUT: "image_config was left out: {} makes no images.",
    MARKS: "cache_control was left out: {} has no cache marks.",
}


def _word(effort: str) -> Effort | Literal[""]:
    """An effort from a list in the neutral form; "" for one that has no neutral name."""
    return next((word for word in EFFORTS if word == effort), "")
