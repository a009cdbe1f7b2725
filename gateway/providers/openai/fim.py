"""Fill in the middle: calls of the native text completion endpoints of providers of this format.

Sources: Mistral API reference, POST /v1/fim/completions (prompt, suffix; answers as chat completions); DeepSeek API
reference, POST /beta/completions (prompt, suffix; answers as text completions).
"""

from typing import Any

from msgspec import json

from gateway.neutral.chat import ChatRequest, Completion
from gateway.providers import quirks
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target

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
