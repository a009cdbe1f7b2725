"""The chat completions protocol: builds the call that a target and its entry require."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, json

from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import NO_OPTIONS, ChatRequest, ChatResult, Completion, Native
from gateway.neutral.events import Batch
from gateway.neutral.parameters import fields_of, nearest
from gateway.providers import quirks
from gateway.providers.failures import upstream_failure
from gateway.providers.function_parameters import complete_relayed
from gateway.providers.openai.address import Tokens, address_of, endpoint_of, is_lasting
from gateway.providers.openai.reply import read_result
from gateway.providers.openai.request import write_body, write_tier
from gateway.providers.openai.stream import ChatStreamReader
from gateway.providers.parameter_writer import is_unlisted
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, CallEndpoint, Target, UpstreamReply
from gateway.providers.tool_names import OPENAI

# Fill in the middle: calls of the native text completion endpoints of providers of this format.
#
# Sources: Mistral API reference, POST /v1/fim/completions (prompt, suffix; answers as chat completions); DeepSeek API
# reference, POST /beta/completions (prompt, suffix; answers as text completions).

NO_STREAM_OPTIONS = "no_stream_options"
SAMPLED = ("temperature", "top_p")


def write_fim(request: ChatRequest, completion: Completion, target: Target, tokens: Tokens | None) -> Call:
    """Return the call for a completion at a target with a text completion endpoint."""
    sampling = request.conversation().sampling
    body: dict[str, Any] = {"model": target.mapping.external_id, "prompt": completion.prompt}
    if completion.suffix:
        body["suffix"] = completion.suffix
    limits = [limit for limit in (sampling.max_tokens, target.output_cap) if limit is not None]
    if limits:
        body["max_tokens"] = min(limits)
    body |= {name: getattr(sampling, name) for name in SAMPLED if getattr(sampling, name) is not None}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    stream = request.requirements.stream
    if stream:
        body["stream"] = True
        if NO_STREAM_OPTIONS not in target.quirks:
            body["stream_options"] = {"include_usage": True}
    url, headers = _place(target, tokens)
    headers |= {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
    return Call("POST", url, headers, json.encode(body), stream)


def _place(target: Target, tokens: Tokens | None) -> tuple[str, dict[str, str]]:
    """Return URL and headers. The beta path replaces the version path."""
    if quirks.FIM_COMPLETIONS in target.quirks:
        return address_of(target, "/fim/completions", tokens)
    url, headers = address_of(target, "/completions", tokens)
    base, _, query = url.partition("?")
    root = base.removesuffix("/completions").removesuffix(target.provider.version_path or "/v1")
    return f"{root}/beta/completions{'?' if query else ''}{query}", headers


PATH = "/chat/completions"
COMPATIBLE = "compatible"  # the quirk of servers other than OpenAI
PARALLEL = "parallel_tool_calls"
TOOLS = "tools"
TOP_K = "top_k"  # sent only to mappings that list it
FIELDS = fields_of(dialect.NAME)
# Parameters that are left out with a warning when the mapping's entry lists parameters without them.
OPTIONAL = tuple((path, row) for path, row in FIELDS.items() if row.listed and path != TOP_K)
# Parameters that are removed where the mapping lacks the flag of their capability. parallel_tool_calls is reported.
FLAGGED = tuple(
    (path, row.capability.flag)
    for path, row in FIELDS.items()
    if row.capability and row.capability.flag and path != PARALLEL
)
UNSTREAMED_KEY = "openai chat"
STREAMED_KEY = "openai chat stream"


class OpenAIChat:
    """POST {address}/chat/completions. Streams always include usage. `tokens` exchanges a service account's JSON for an
    access token, for providers that need one."""

    dialect = dialect.NAME
    lost = frozenset(("cache_marks",))
    waits = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Return the call for a neutral request; NotSupported for content that this format cannot carry."""
        if request.completion is not None and target.completes:
            return write_fim(request, request.completion, target, self._tokens)
        warnings: list[str] = []
        free_text = COMPATIBLE not in target.quirks  # servers other than OpenAI have functions only
        prepared = prepare(request, self.dialect, OPENAI, warnings, free_text=free_text)
        mapping = target.mapping
        replays = quirks.REPLAY_REASONING in target.quirks
        body = write_body(prepared.request, replays, warnings, extra=google.reads_extra(mapping.external_id))
        if "web_search_options" in body and (mapping.responses_api or not mapping.web_search):
            raise NotSupported("This provider has no web search for this model.", param="tools")
        call = _finish(body, request, target, warnings, self._tokens)
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Return the call with the caller's body, retargeted."""
        return _finish(native.body, request, target, [], self._tokens)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete answer. UpstreamFailed for an unexpected shape or an empty answer."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield a streamed answer as batches, one for each receive."""
        return ChatStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        return upstream_failure(reply, target)


class Custom(Struct, eq=False):
    """The values that all calls of a target share: the provider's model name, the fields that may need a change
    (`watched`), the quirks, the header for the session ("": none), and URL and headers (None: determined for each
    call)."""

    model: str
    watched: frozenset[str]
    quirks: tuple[quirks.Quirk, ...]
    session_header: str
    endpoint: CallEndpoint | None = None


def _finish(
    body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str], tokens: Tokens | None
) -> Call:
    """Return the call for a rebuilt or relayed body, with model, stream options, limits, supported parameters, quirks,
    URL and credential."""
    stream = request.requirements.stream
    custom = target.memo.get(STREAMED_KEY if stream else UNSTREAMED_KEY)
    if custom is None:
        custom = target.memo[STREAMED_KEY if stream else UNSTREAMED_KEY] = _custom_of(target)
    body = {"model": custom.model, **body}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if target.output_cap is not None:
        _limit(body, target.output_cap)
    if not custom.watched.isdisjoint(body):
        if TOOLS in body:
            body[TOOLS] = complete_relayed(body[TOOLS])
        _fit(body, request, target, warnings)
    options = request.options
    if options is not NO_OPTIONS and options.service_tier:
        write_tier(body, options.service_tier, target)
    for quirk in custom.quirks:
        quirk(body, request)
    endpoint = custom.endpoint
    if endpoint is None:
        endpoint = _endpoint_of(custom, request, target, tokens)
    reported = tuple(warnings) if warnings else ()
    return Call("POST", endpoint.url, endpoint.headers, json.encode(body), stream, reported, None, endpoint)


def _endpoint_of(custom: Custom, request: ChatRequest, target: Target, tokens: Tokens | None) -> CallEndpoint:
    """Return URL and headers, with the digest of the session where the provider finds its cache by a header."""
    endpoint = endpoint_of(target, PATH, request.requirements.stream, tokens)
    if custom.session_header:
        key = quirks.cache_key_of(request)
        return CallEndpoint(endpoint.url, {**endpoint.headers, custom.session_header: key}) if key else endpoint
    if is_lasting(target):
        custom.endpoint = endpoint
    return endpoint


def _custom_of(target: Target) -> Custom:
    mapping = target.mapping
    watched = {name for name, row in OPTIONAL if is_unlisted(row, mapping)}
    watched |= {name for name, flag in FLAGGED if not getattr(mapping, flag)}
    watched.add(TOOLS)
    watched |= {TOP_K} - set(mapping.supported_parameters)
    watched |= set(quirks.SAMPLING_PARAMETERS) if quirks.NO_SAMPLING in target.quirks else set()
    watched |= set() if mapping.parallel_tool_calls else {PARALLEL}
    watched |= {"temperature"} if mapping.max_temperature else set()
    watched |= set() if _can_stop_reasoning(target) else {"reasoning_effort"}
    names = [name for name in target.quirks if name != quirks.REASONED_CALLS]
    if mapping.reasoning and quirks.REASONED_CALLS in target.quirks:
        names.append(quirks.REASONED_CALLS)  # the last one, since others set or remove the switch that it reads
    return Custom(
        mapping.external_id, frozenset(watched), quirks.find_quirks(names), target.provider.session_header.lower()
    )


def _limit(body: dict[str, Any], cap: int) -> None:
    """Lower the output limit to `cap`, which comes from the budget or the model."""
    if body.get("max_completion_tokens", cap + 1) > cap:
        body["max_completion_tokens"] = cap


def _fit(body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> None:
    """Remove watched fields that the mapping does not support and that are not essential to the request."""
    mapping = target.mapping
    if mapping.max_temperature and body.get("temperature", 0) > mapping.max_temperature:
        body["temperature"] = mapping.max_temperature
    if quirks.NO_SAMPLING in target.quirks:
        warnings.extend(quirks.report_fixed(body, mapping.key))
    for name, row in OPTIONAL:
        if name in body and is_unlisted(row, mapping):
            del body[name]
            warnings.append(f"{name} is not supported by {mapping.key} and was left out.")
    if TOP_K in body and TOP_K not in mapping.supported_parameters:
        del body[TOP_K]
        warnings.append(f"{TOP_K} is not supported by {mapping.key} and was left out.")
    if not mapping.parallel_tool_calls and body.pop(PARALLEL, None) is False:
        warnings.append(f"{PARALLEL} is not supported by {mapping.key} and was left out.")
    for name, flag in FLAGGED:
        if not getattr(mapping, flag):
            body.pop(name, None)
    if body.get("reasoning_effort") == "none" and not _can_stop_reasoning(target):
        _reason_least(body, target, warnings)


def _can_stop_reasoning(target: Target) -> bool:
    """Whether the model accepts the effort "none": models without reasoning refuse it."""
    efforts = target.mapping.reasoning_efforts
    return target.mapping.reasoning and (not efforts or "none" in efforts)


def _reason_least(body: dict[str, Any], target: Target, warnings: list[str]) -> None:
    """Replace the effort "none" by the lowest effort of a model that always reasons."""
    mapping = target.mapping
    del body["reasoning_effort"]
    if mapping.reasoning:
        body["reasoning_effort"] = minimum = nearest("minimal", mapping.reasoning_efforts)
        warnings.append(f"reasoning_effort none was replaced by {minimum}: {mapping.key} always reasons.")
