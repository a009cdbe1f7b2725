"""Revisions of the protocol: those that begin with `initialize`, and the one in which every message declares its
version (2026-07-28: no handshake, headers that mirror the body, results that declare their kind)."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any

from gateway import __version__
from gateway.surfaces.http import Inbound
from gateway.surfaces.mcp.connection_checks import STATELESS, SUPPORTED, VERSION_HEADER, VERSIONS
from gateway.surfaces.mcp.json_rpc import INVALID_PARAMS, UNKNOWN_METHOD, Fault, Json, MethodCall

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
STATUSES = {INVALID_PARAMS: 400, UNKNOWN_METHOD: 404}
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CAPABILITIES_KEY = f"{META}clientCapabilities"
SERVER_KEY = f"{META}serverInfo"
NAMED_METHODS = ("tools/call",)  # methods with a header that mirrors params.name
SERVER = {"name": "llmgateway", "version": __version__}
# How long a client may cache results that stay the same for all callers until the next release.
CACHEABLE: Json = {"ttlMs": 300_000, "cacheScope": "public"}
ENCODED = "=?base64?"
ENCODED_END = "?="


def is_stateless(inbound: Inbound, call: MethodCall) -> bool:
    """Return whether the message declares its own version. Raises Fault for one that contradicts its headers."""
    header = inbound.header(VERSION_HEADER)
    meta = call.params.get("_meta")
    if isinstance(meta, dict):
        version = meta.get(VERSION_KEY)
    else:
        version = None
    if header != STATELESS and (version is None or version in VERSIONS):
        return False
    if not isinstance(meta, dict) or missing(meta):
        names = ", ".join(missing(meta) if isinstance(meta, dict) else (VERSION_KEY, CAPABILITIES_KEY))
        raise Fault(INVALID_PARAMS, f"In this version params._meta must have {names}.", 400)
    _check_mirrors(inbound, call, header, version)
    if version != STATELESS:
        raise Fault(
            UNSUPPORTED_VERSION,
            "This version of the protocol is not supported.",
            400,
            {"supported": list(SUPPORTED), "requested": version},
        )
    return True


def missing(meta: Json) -> tuple[str, ...]:
    return tuple(key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta)


def _check_mirrors(inbound: Inbound, call: MethodCall, header: str, expected: Any) -> None:
    if header != expected:
        raise Fault(HEADER_MISMATCH, "MCP-Protocol-Version and the version in params._meta differ.", 400)
    if inbound.header(METHOD_HEADER) != call.method:
        raise Fault(HEADER_MISMATCH, "Mcp-Method and the method of the message differ.", 400)
    name = call.params.get("name")
    if call.method in NAMED_METHODS and name is not None and _plain(inbound.header(NAME_HEADER)) != name:
        raise Fault(HEADER_MISMATCH, "Mcp-Name and params.name differ.", 400)


def _plain(value: str) -> str | None:
    """Return a header's value; None for one with invalid encoding."""
    if not (value.startswith(ENCODED) and value.endswith(ENCODED_END)):
        return value
    try:
        return b64decode(value[len(ENCODED) : -len(ENCODED_END)], validate=True).decode()
    except (NotBase64, ValueError):
        return None


def complete(result: Json) -> Json:
    """Return a result in the form of the stateless revision."""
    return {**result, "resultType": "complete", "_meta": {SERVER_KEY: SERVER}}


def status_of(fault: Fault, stateless: bool) -> int:
    """Return the status of a fault: the stateless revision has one for each number."""
    return fault.status or (STATUSES.get(fault.number, 200) if stateless else 200)
