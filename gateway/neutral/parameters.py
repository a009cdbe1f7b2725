"""The parameters of chat requests: one row for each, from which every list of parameters is derived at import.

A field of Sampling carries its row as its annotation. The other rows (FIELDS) belong to fields with a special
form, which each dialect reads and writes separately; they share only their names and their words.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, field
from msgspec.structs import fields, replace

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Level = Literal["low", "medium", "high"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Count = Annotated[int, Meta(ge=1)]
MAX_CHOICES = 128
ChoiceCount = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
CHAT = "openai"  # the gateway uses the names of this dialect internally


class Capability(Struct, frozen=True):
    """The ability of a mapping that some parameters need. It is a preference: a mapping without it gets the request
    without these parameters, and the caller a warning for each.

    `name` is its name in requirements, plans and records, `flag` the field of a catalogue mapping that offers it.
    Without a flag every mapping has it, unless its protocol has no field for the parameters, a quirk removes them, or
    the mapping lists its supported parameters without them.
    """

    name: str
    flag: str = ""


class Parameter(Struct, frozen=True):
    """One parameter. `type` is its type in requests, with its limits.

    `callers` is the dotted path of its field by the dialect of requests to the gateway, `upstream` by the dialect of
    requests to providers; a provider of any other dialect gets the request without it, and the caller a warning.
    `unset` are further values that count as absent. `listed`: a mapping that lists its supported parameters without it
    does not get it. `quirks` are the quirks of catalogue entries that remove it. `title` begins warnings if its name is
    no field of callers. `name` and `default` are those of its field of Sampling.
    """

    callers: Mapping[str, str]
    upstream: Mapping[str, str] = field(default_factory=dict)
    type: Any = None
    capability: Capability | None = None
    unset: tuple[Any, ...] = (None,)
    listed: bool = False
    quirks: tuple[str, ...] = ()
    title: str = ""
    name: str = ""
    default: Any = None

    @property
    def field(self) -> str:
        """Return its name in chat completions, which is its name within the gateway."""
        return self.callers.get(CHAT, self.name)

    @property
    def subject(self) -> str:
        """Return the beginning of warnings about it."""
        return self.title or self.field

    @property
    def words(self) -> tuple[str, ...]:
        """Return the allowed values if they are words."""
        if get_origin(self.type) is Literal:
            return get_args(self.type)
        return ()

    def is_given(self, value: Any) -> bool:
        """Return whether a value of its field in a request, or of Sampling, sets it."""
        return value not in self.unset


PENALTIES = Capability("penalties")


def _penalty(name: str, camel: str) -> Parameter:
    return Parameter(
        {"openai": name, "aisdk": camel, "completions": name, "google": f"generationConfig.{camel}", "cohere": name},
        {"openai": name, "google": camel, "cohere": name},
        Penalty,
        PENALTIES,
        unset=(None, 0),
        listed=True,
        quirks=("drop_penalties", "no_sampling"),
    )


class Sampling(Struct, frozen=True, gc=False):
    """The parameters of a request that have one value each."""

    max_tokens: Annotated[
        int | None,
        Parameter(
            {"openai": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}
            | {"aisdk": "maxOutputTokens", "completions": "max_tokens", "google": "generationConfig.maxOutputTokens"}
            | {"cohere": "max_tokens"},
            {"openai": "max_completion_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}
            | {"google": "maxOutputTokens", "bedrock": "maxTokens", "cohere": "max_tokens"},
            Count,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Parameter(
            dict.fromkeys(("openai", "responses", "anthropic", "aisdk", "completions", "cohere"), "temperature")
            | {"google": "generationConfig.temperature"},
            dict.fromkeys(("openai", "responses", "anthropic", "google", "bedrock", "cohere"), "temperature"),
            Temperature,
            listed=True,
            quirks=("no_sampling",),
        ),
    ] = None
    top_p: Annotated[
        float | None,
        Parameter(
            dict.fromkeys(("openai", "responses", "anthropic", "completions"), "top_p")
            | {"aisdk": "topP", "google": "generationConfig.topP", "cohere": "p"},
            dict.fromkeys(("openai", "responses", "anthropic"), "top_p")
            | {"google": "topP", "bedrock": "topP", "cohere": "p"},
            Share,
            listed=True,
            quirks=("no_sampling",),
        ),
    ] = None
    top_k: Annotated[
        int | None,
        Parameter(
            {"anthropic": "top_k", "google": "generationConfig.topK", "cohere": "k"},
            {"openai": "top_k", "anthropic": "top_k", "google": "topK", "bedrock": "topK", "cohere": "k"},
            Annotated[int, Meta(ge=0)],
            listed=True,
        ),
    ] = None
    frequency_penalty: Annotated[float | None, _penalty("frequency_penalty", "frequencyPenalty")] = None
    presence_penalty: Annotated[float | None, _penalty("presence_penalty", "presencePenalty")] = None
    n: Annotated[
        int,
        Parameter(
            {"openai": "n", "completions": "n", "google": "generationConfig.candidateCount"},
            {"openai": "n", "google": "candidateCount"},
            ChoiceCount,
        ),
    ] = 1
    stop: Annotated[
        tuple[str, ...],
        Parameter(
            {"anthropic": "stop_sequences", "completions": "stop", "google": "generationConfig.stopSequences"}
            | {"cohere": "stop_sequences"},
            {"openai": "stop", "anthropic": "stop_sequences", "google": "stopSequences"}
            | {"bedrock": "stopSequences", "cohere": "stop_sequences"},
            listed=True,
            quirks=("no_stop",),
        ),
    ] = ()
    parallel_tool_calls: Annotated[
        bool | None,
        Parameter(
            dict.fromkeys(("openai", "responses"), "parallel_tool_calls")
            | {"anthropic": "tool_choice.disable_parallel_tool_use"},
            dict.fromkeys(("openai", "responses"), "parallel_tool_calls")
            | {"anthropic": "tool_choice.disable_parallel_tool_use"},
            bool,
            Capability("parallel tools", "parallel_tool_calls"),
            quirks=("no_parallel_tool_calls",),
        ),
    ] = None
    verbosity: Annotated[
        str,
        Parameter(
            {"openai": "verbosity", "responses": "text.verbosity"},
            {"openai": "verbosity", "responses": "text.verbosity"},
            Level,
            Capability("verbosity", "verbosity"),
            quirks=("no_verbosity",),
        ),
    ] = ""
    # A vendor's separate output effort, besides that of reasoning.
    output_effort: Annotated[
        str,
        Parameter(
            {"openai": "effort"},
            {"anthropic": "output_config.effort", "bedrock": "outputConfig.effort"},
            Level,
            title="The output effort",
        ),
    ] = ""


def _rows_of(kind: type[Struct]) -> Iterator[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        _, row = get_args(hints[each.name])
        yield replace(row, name=each.name, default=each.default, unset=(*row.unset, each.default))


# The rows of Sampling, by name.
PARAMETERS: dict[str, Parameter] = {row.name: row for row in _rows_of(Sampling)}
# Fields that have a different form in each dialect.
FIELDS: tuple[Parameter, ...] = (
    Parameter(
        {"openai": "messages", "responses": "input", "aisdk": "prompt", "completions": "prompt"}
        | {"embeddings": "input", "rerank": "documents", "google": "contents", "cohere_embed": "texts"}
    ),
    Parameter(
        {"openai": "response_format", "responses": "text.format", "anthropic": "output_config.format"}
        | {"aisdk": "responseFormat", "google": "generationConfig.responseJsonSchema"}
    ),
    Parameter({"openai": "input_type", "google": "taskType"}),  # of embeddings, like the next
    Parameter({"openai": "dimensions", "google": "outputDimensionality", "cohere_embed": "output_dimension"}),
    Parameter({"openai": "tool_choice", "aisdk": "toolChoice", "google": "toolConfig.functionCallingConfig"}),
    Parameter(
        {
            "openai": "reasoning",
            "anthropic": "thinking",
            "google": "generationConfig.thinkingConfig",
            "cohere": "thinking",
        }
    ),
    Parameter(
        {"openai": "reasoning_effort", "responses": "reasoning.effort", "anthropic": "output_config.effort"}
        | {"google": "generationConfig.thinkingConfig.thinkingLevel"},
        type=Effort,
    ),
    Parameter(
        dict.fromkeys(("openai", "responses"), "service_tier"),
        dict.fromkeys(("openai", "responses"), "service_tier"),
        ServiceTier,
    ),
)
ROWS: tuple[Parameter, ...] = (*PARAMETERS.values(), *FIELDS)
CAPABILITIES: tuple[Capability, ...] = tuple(
    dict.fromkeys(row.capability for row in PARAMETERS.values() if row.capability)
)
CAPABILITY_PARAMETERS: tuple[Parameter, ...] = tuple(row for row in PARAMETERS.values() if row.capability)


def names_in(dialect: str) -> dict[str, str]:
    """Return the fields of a dialect of callers by their names in chat completions, without those of the same name."""
    return {
        row.field: row.callers[dialect] for row in ROWS if dialect in row.callers and row.callers[dialect] != row.field
    }


def words_in(dialect: str) -> dict[str, tuple[str, ...]]:
    """Return the allowed words of the fields of a dialect of callers, by their paths."""
    return {row.callers[dialect]: row.words for row in ROWS if row.words and dialect in row.callers}


def relayed_fields(dialect: str) -> tuple[str, ...]:
    """Return the parameters that callers and providers of a dialect write in the same field of the body."""
    fields = [row.callers[dialect] for row in PARAMETERS.values() if dialect in row.callers]
    return tuple(path for path in fields if path in fields_of(dialect) and "." not in path)


def fields_of(dialect: str) -> dict[str, Parameter]:
    """Return the rows of the parameters that requests to providers of a dialect have a field for, by that field."""
    return {row.upstream[dialect]: row for row in PARAMETERS.values() if dialect in row.upstream}


def removed_by_quirks(dialect: str) -> dict[str, list[str]]:
    """Return the fields of requests to providers of a dialect that each quirk removes."""
    removed: dict[str, list[str]] = {}
    for row in ROWS:
        for quirk in row.quirks:
            removed.setdefault(quirk, [])
            if dialect in row.upstream:
                removed[quirk].append(row.upstream[dialect])
    return removed


def lost_by(dialect: str) -> frozenset[str]:
    """Return the capabilities without a flag that requests to providers of a dialect have no field for."""
    return frozenset(
        row.capability.name
        for row in CAPABILITY_PARAMETERS
        if row.capability and not row.capability.flag and dialect not in row.upstream
    )


def capabilities_of(sampling: Sampling) -> frozenset[str]:
    """Return the names of the capabilities that the given parameters need."""
    return frozenset(
        [
            row.capability.name
            for row in CAPABILITY_PARAMETERS
            if row.capability and row.is_given(getattr(sampling, row.name))
        ]
    )


# Levels of reasoning effort, from the least to the most.

ALL_EFFORTS: tuple[Effort, ...] = get_args(Effort)
RISING = ALL_EFFORTS[1:]  # "none" is no level


def nearest(effort: str, offered: tuple[str, ...]) -> str:
    """Return the highest offered level that is not above `effort`, else the lowest.

    Return `effort` unchanged if it or the offered levels are unknown.
    """
    levels = [level for level in RISING if level in offered]
    if not levels or effort not in RISING:
        return effort
    return next((level for level in reversed(levels) if RISING.index(level) <= RISING.index(effort)), levels[0])
