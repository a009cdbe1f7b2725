"""The URL, credential, version and beta headers that each host of the messages format requires.

Wire facts: Anthropic documentation, "Versions", "Beta headers"; Vertex AI, "Claude models" (model in the path,
anthropic_version in the body, regional hosts); Azure AI Foundry, "Claude" (x-api-key).
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from gateway.dialects.anthropic import VERSION
from gateway.dialects.anthropic_betas import (
    BETAS,
    COMMON_BETAS,
    FILES_BETA,
    OWN_BETAS,
    VERTEX_BETAS,
    known_betas,
    requested_betas,
)
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.neutral.request import MARK_END
from gateway.providers.protocol import CallEndpoint, Target

PATH = "/messages"
# `extra.betas` of a mapping replaces the list of the beta features that its host accepts.
# Quirks of a catalogue entry. vertex_raw_predict: the model is in the path and the version in the body.
# plain_tools: tools may have only the members in PLAIN_TOOL.
RAW_PREDICT = "vertex_raw_predict"
PLAIN_TOOLS = "plain_tools"
RAW_VERSION = "vertex-2023-10-16"
GLOBAL_HOST = "aiplatform.googleapis.com"
JOINT_REGIONS = ("us", "eu")  # multi-regions, which have a different form of host name
OAUTH = "google-oauth"
SIGNED = "sigv4"
ENDPOINT = "endpoint of messages"  # key in `Target.memo`
PLAIN_TOOL = ("type", "name", "description", "input_schema", "cache_control")

TAKES_SYSTEM = re.compile(r"claude-(?:opus-4-(?:[89]|1\d)|[a-z]+-(?:[5-9]|\d\d))(?!\d)")

# Models that continue an answer at the end of a conversation; newer ones refuse it (documentation, "Prefill").
CONTINUES = re.compile(r"claude-(?:[23]|instant|(?:opus|sonnet|haiku)-4(?:-[0-5](?!\d)|-20\d{6}|@|$))")

Tokens = Callable[[str], str]


def locate(target: Target, stream: bool) -> str:
    """Return the URL of the call."""
    base, _, query = target.address.partition("?")
    base = base.rstrip("/")
    if RAW_PREDICT in target.quirks:
        verb = "streamRawPredict" if stream else "rawPredict"
        url = f"{_regional(base, target)}/models/{quote(target.mapping.external_id, safe='@')}:{verb}"
    else:
        url = base + PATH
    arguments = [query] if query else []
    auth = target.provider.auth
    secret = target.credential.secret
    if secret and auth.startswith("query:"):
        arguments.append(f"{auth[len('query:') :]}={quote(secret, safe='')}")
    if arguments:
        return f"{url}?{'&'.join(arguments)}"
    return url


def _regional(base: str, target: Target) -> str:
    """Replace the global host with the host of the region; an address set by the operator stays as it is."""
    region = target.settings.get("region", "")
    if urlsplit(base).netloc != GLOBAL_HOST or region in ("", "global"):
        return base
    host = f"aiplatform.{region}.rep.googleapis.com" if region in JOINT_REGIONS else f"{region}-{GLOBAL_HOST}"
    return base.replace(GLOBAL_HOST, host, 1)


def endpoint_of(request: ChatRequest, target: Target, stream: bool, tokens: Tokens | None) -> CallEndpoint:
    """Return the URL and the headers of a call. Errors as in `write_headers`.

    The value is cached in the target, except for calls with the caller's beta headers and for credentials that are
    exchanged for tokens, which expire.
    """
    cacheable = target.provider.auth != OAUTH and not _has_betas(request)
    endpoint: CallEndpoint | None = target.memo.get((ENDPOINT, stream)) if cacheable else None
    if endpoint is None:
        headers = write_headers(request, target, tokens)
        headers["content-type"] = "application/json"
        if stream:
            headers["accept"] = "text/event-stream"
        else:
            headers["accept"] = "application/json"
        endpoint = CallEndpoint(locate(target, stream), headers)
        if cacheable:
            target.memo[ENDPOINT, stream] = endpoint
    return endpoint


def write_headers(request: ChatRequest, target: Target, tokens: Tokens | None) -> dict[str, str]:
    """Return the headers with the credential. NotSupported for an authentication that this protocol lacks."""
    headers = {name.lower(): value for name, value in target.provider.headers.items()}
    if RAW_PREDICT not in target.quirks:
        headers.setdefault("anthropic-version", VERSION)
    betas = _allowed_betas(request, target)
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    auth = target.provider.auth
    secret = target.credential.secret
    if auth == SIGNED or (auth == OAUTH and secret.lstrip().startswith("{") and tokens is None):
        raise NotSupported(f"This protocol does not support the authentication of provider {target.provider.id}.")
    if secret and auth == OAUTH:
        bearer = tokens(secret) if tokens is not None and secret.lstrip().startswith("{") else secret
        headers["authorization"] = f"Bearer {bearer}"
    elif secret and auth == "bearer":
        headers["authorization"] = f"Bearer {secret}"
    elif secret and auth != "none" and not auth.startswith("query:"):
        headers[auth.lower()] = secret
    return headers


def with_files(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a call that names stored files."""
    betas = headers.get("anthropic-beta", "").split(",")
    return {**headers, "anthropic-beta": ",".join(filter(None, dict.fromkeys((*betas, FILES_BETA))))}


def _has_betas(request: ChatRequest) -> bool:
    """Return whether the request enables beta features, by name or by the mark of a model."""
    options = request.options
    return bool(options.extra.get(BETAS) or options.models) or request.requested_model.endswith(MARK_END)


def _allowed_betas(request: ChatRequest, target: Target) -> list[str]:
    """Return the requested beta values that this host accepts, in their order and without duplicates."""
    if not _has_betas(request):
        return []
    options = request.options
    betas = requested_betas(options.extra.get(BETAS) or (), (request.requested_model, *options.models))
    listed = target.mapping.extra.get("betas")
    if listed is not None:
        accepted = frozenset(listed)
    elif RAW_PREDICT in target.quirks:
        accepted = VERTEX_BETAS
    elif is_own(target):
        accepted = OWN_BETAS
    else:
        accepted = COMMON_BETAS
    return known_betas(betas, accepted)


def address_body(body: dict[str, Any], target: Target) -> dict[str, Any]:
    """Return the body with the model, or with the version for hosts that have the model in the path."""
    if RAW_PREDICT in target.quirks:
        return {"anthropic_version": RAW_VERSION, **body}
    return {"model": target.mapping.external_id, **body}


def accepted_fields(fields: dict[str, Any], target: Target, warnings: list[str]) -> dict[str, Any]:
    """Return the vendor's fields that the host accepts, and append a warning for each dropped field."""
    if RAW_PREDICT not in target.quirks:
        return fields
    warnings += [f"{name} was left out: {target.mapping.key} does not take it." for name in fields]
    return {}


def continues_answers(target: Target) -> bool:
    """Return whether the model continues an answer at the end of a conversation; other vendors' models may."""
    name = target.mapping.external_id
    return "claude" not in name or CONTINUES.search(name) is not None


def takes_addresses(target: Target) -> bool:
    """Return whether the host loads images and files by URL."""
    return RAW_PREDICT not in target.quirks


def takes_instructions(target: Target) -> bool:
    """Return whether the model takes system messages behind a user turn; models before Claude Opus 4.8 refuse the role
    (documentation, "Mid-conversation system messages")."""
    return is_own(target) and TAKES_SYSTEM.search(target.mapping.external_id) is not None


def is_own(target: Target) -> bool:
    """Return whether the host is the vendor's own service, and no other platform with its models."""
    return RAW_PREDICT not in target.quirks and PLAIN_TOOLS not in target.quirks


def plain_tools(tools: list[dict[str, Any]], target: Target) -> list[dict[str, Any]]:
    """Return the tools, without newer members for hosts with the quirk `plain_tools`."""
    if PLAIN_TOOLS not in target.quirks:
        return tools
    return [_plain_tool(tool) for tool in tools]


def _plain_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        return tool
    return {name: tool[name] for name in PLAIN_TOOL if name in tool}
