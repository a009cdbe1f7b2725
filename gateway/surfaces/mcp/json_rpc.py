"""JSON-RPC 2.0 as MCP uses it: checks of a connection, one message per request, errors as bodies, and the revisions."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeGuard
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gateway import __version__
from gateway.callers import scopes as scopes_module
from gateway.callers.authentication import Caller
from gateway.configuration.settings import LimitSettings
from gateway.errors import Forbidden, GatewayError, Gone, InvalidRequest, RequestTooLarge, Unauthenticated
from gateway.oauth.clients import LOOPBACK
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.validation_errors import readable
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.answer_structs import Answer, JsonObject, Url, describe_answer
from gateway.surfaces.web.http import ErrorFormat, Inbound
from gateway.worker.services import Services

# Checks of a connection to `/mcp` before any message is read: page origins, versions, keys.

PATH = "/mcp"
VERSION_HEADER = "mcp-protocol-version"
# Revisions that begin with `initialize`, the newest first, and the revision in which each message declares its
# version.
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_VERSION = "2026-07-28"
SUPPORTED_VERSIONS = (STATELESS_VERSION, *HANDSHAKE_VERSIONS)
LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
VARY = ("Vary", "Accept, Origin")  # headers of every response
METADATA = "/.well-known/oauth-protected-resource/mcp"


def check_origin(services: Services, inbound: Inbound) -> None:
    """Raise Forbidden for pages of origins that are not allowed, and on loopback for pages under another host name (DNS
    rebinding). Programs send no origin and pass.

    The protocol requires this even with a valid key, so each origin has to be listed: a `*` for the other routes does
    not count. Pages on this computer, such as those of MCP Inspector, have a loopback name, which DNS cannot rebind.
    """
    origin = inbound.header("origin").rstrip("/").lower()
    if not origin:
        return
    server = services.settings.server
    security = services.settings.security
    if server.host in LOOPBACK:
        host = (urlsplit(f"//{inbound.header('host')}").hostname or "").lower()
        named = {(urlsplit(server.public_url).hostname or "").lower(), *server.allowed_hosts} - {""}
        if host not in LOOPBACK | named:
            raise _foreign(
                "Only local host names are allowed; the operator sets GATEWAY_SERVER_PUBLIC_URL to use another one."
            )
    if LOCAL_PAGE.fullmatch(origin):
        return
    own = urlsplit(inbound.base_url)
    allowed = {f"{own.scheme}://{own.netloc}", *security.trusted_origins, *security.cors_origins}
    if origin not in {address.rstrip("/").lower() for address in allowed}:
        raise _foreign(
            "This origin is not allowed; the operator lists origins in security.cors_origins, beside * if it is there."
        )


def _foreign(message: str) -> Forbidden:
    return Forbidden(message, code="origin_not_allowed")


def check_version(inbound: Inbound) -> None:
    """Raise InvalidRequest for an unsupported version; a request without a version comes from an older client."""
    version = inbound.header(VERSION_HEADER)
    if version and version not in SUPPORTED_VERSIONS:
        raise InvalidRequest(
            f"This version of the protocol is not supported; send one of {', '.join(SUPPORTED_VERSIONS)}.",
            code="unsupported_protocol_version",
        )


def caller_of(services: Services, inbound: Inbound) -> Caller:
    """Return the caller of the key or the access token. Raises Unauthenticated with the challenge that clients follow,
    and Forbidden for a token without the tools scope or a key with a closed project or organization."""
    try:
        caller = auth_module.caller_of(services, inbound)
        if caller.by_token and scopes_module.TOOLS not in caller.scopes:
            raise Forbidden(
                f"This requires an access token with the scope {scopes_module.TOOLS}.", code="insufficient_scope"
            )
        return caller
    except (Unauthenticated, Forbidden, Gone) as error:
        raise convert_error(error, inbound) from None


def convert_error(error: GatewayError, inbound: Inbound) -> GatewayError:
    """Convert the error of a credential to the form that the protocol requires."""
    if isinstance(error, Gone):
        return Forbidden(error.message, code=error.code)
    if isinstance(error, Unauthenticated):
        return _challenge(error, inbound, "invalid_token" if auth_module.token_of(inbound) else "")
    if error.code == "insufficient_scope":
        return _challenge(error, inbound, error.code)
    return error


def _challenge(error: GatewayError, inbound: Inbound, problem: str) -> GatewayError:
    """Return the error with the challenge that leads clients to a token (RFC 9728, section 5.1; RFC 6750, section
    3)."""
    detail = f'error="{problem}", ' if problem else ""
    where = f'resource_metadata="{inbound.base_url}{METADATA}"'
    error.headers = (*error.headers, ("WWW-Authenticate", f'Bearer {detail}scope="{scopes_module.TOOLS}", {where}'))
    return error


# Messages of MCP, and the public information of the server.

Result = Annotated[Any, Meta(extra_json_schema={"type": "object"})]  # an object, or its JSON


class McpCall(TypedDict):
    """A message of a client: a request, a notification, or a response."""

    jsonrpc: Literal["2.0"]
    id: NotRequired[Annotated[str | int, Meta(description="Absent in a notification, which gets no response.")]]
    method: NotRequired[str]
    params: NotRequired[JsonObject]
    result: NotRequired[JsonObject]
    error: NotRequired[JsonObject]


class McpErrorAnswer(Answer):
    code: int
    message: str
    data: JsonObject | UnsetType = UNSET


class McpMessageAnswer(Answer, kw_only=True):
    """A JSON-RPC response: a result or an error. `id` is that of the request, or null if it was not read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    result: Result | UnsetType = UNSET
    error: McpErrorAnswer | UnsetType = UNSET


class McpFaultAnswer(Answer, kw_only=True):
    """A JSON-RPC error response."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    error: McpErrorAnswer


class McpServerAnswer(Answer):
    name: str
    version: str
    description: str
    protocol_version: str
    transport: str
    endpoint: Url
    documentation: Url
    capabilities: JsonObject


Json = dict[str, Any]
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
REFUSED_CODE = -32000
NOT_LET_IN = -32001
TIMED_OUT = -32001  # the MCP SDKs use this number for a timeout
MAX_BYTES = 4 << 20
LARGE = 256 << 10  # bytes; a longer message is decoded in a thread
MAX_ID_LENGTH = 256  # characters of an id that is returned
# Errors with a code other than the default of their class.
OF_CODES = {
    "invalid_json": PARSE_ERROR,
    "invalid_message": INVALID_REQUEST,
    "request_too_complex": INVALID_REQUEST,
    "unsupported_protocol_version": INVALID_REQUEST,
    "origin_not_allowed": REFUSED_CODE,
}
OF_KINDS = {"unauthenticated": NOT_LET_IN, "forbidden": NOT_LET_IN, "gone": NOT_LET_IN}


class MethodCall(Struct, frozen=True):
    """A request; its response carries the same `ident`."""

    ident: str | int
    method: str
    params: Json


class Fault(Exception):
    """An error of the protocol itself: a number and a message. `status` 0: that of the revision; `error` is the cause,
    where a request failed."""

    def __init__(
        self, number: int, message: str, status: int = 0, data: Json | None = None, error: GatewayError | None = None
    ) -> None:
        super().__init__(message)
        self.number = number
        self.message = message
        self.status = status
        self.data = data
        self.error = error


class _Identified(msgspec.Struct):
    """A message of which only the id is read."""

    id: Any = None


def read_call(limits: LimitSettings, raw: bytes) -> MethodCall | None:
    """Return the call in a body; None for a message that needs no response (a notification, a client's response).

    Raises RequestTooLarge; InvalidRequest `invalid_json`, `request_too_complex`, `invalid_message`.
    """
    if len(raw) > MAX_BYTES:
        raise RequestTooLarge(f"A message may have at most {MAX_BYTES >> 20} MiB.")
    message = caps_module.read(limits, raw, _decode, raw)
    if isinstance(message, list):
        raise _broken("Send one message per request; batches are not part of this protocol.")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise _broken('A message must be an object with "jsonrpc": "2.0".')
    method = message.get("method")
    ident = message.get("id")
    if method is None and ("result" in message or "error" in message):
        return None
    if not isinstance(method, str):
        raise _broken("A message must have a method, or be a response.")
    if "id" not in message:
        return None
    if not _is_ident(ident):
        raise _broken(f"The id of a request must be a number or a string of at most {MAX_ID_LENGTH} characters.")
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise _broken("The params of a message must be an object.")
    return MethodCall(ident, method, params)


def _decode(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _decode(readable(raw, error))


def _broken(why: str) -> InvalidRequest:
    return InvalidRequest(why, code="invalid_message")


def result_of(call: MethodCall, result: Json) -> McpMessageAnswer:
    return McpMessageAnswer(id=call.ident, result=result)


def fault_of(call: MethodCall, fault: Fault) -> McpFaultAnswer:
    return McpFaultAnswer(id=call.ident, error=McpErrorAnswer(fault.number, fault.message, fault.data or UNSET))


def refusal_of(ident: str | int | None, error: GatewayError) -> McpFaultAnswer:
    """Return the body for a request that is rejected as a whole; `ident` is null if its message was not read."""
    data = {"code": error.code} if error.code else UNSET
    return McpFaultAnswer(id=ident, error=McpErrorAnswer(_number_of(error), error.message, data))


def _number_of(error: GatewayError) -> int:
    return OF_CODES.get(error.code) or OF_KINDS.get(error.kind, REFUSED_CODE)


def ident_of(raw: bytes) -> str | int | None:
    """Return the id in the body of a rejected request; None where it has no valid id."""
    if not raw or len(raw) > MAX_BYTES:
        return None
    try:
        ident = compute_if(len(raw) > LARGE, msgspec.json.decode, raw, type=_Identified).id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if _is_ident(ident):
        return ident
    return None


def _is_ident(ident: Any) -> TypeGuard[str | int]:
    return (isinstance(ident, str) and len(ident) <= MAX_ID_LENGTH) or (type(ident) is int and abs(ident) < 1 << 63)


def about(inbound: Inbound) -> ErrorFormat:
    """Return the format of an error in response to `inbound`, with the id of its message."""
    ident = ident_of(inbound.body)
    if ident is None:
        return ERRORS
    return ErrorFormat(ERRORS.name, lambda error, _: msgspec.to_builtins(refusal_of(ident, error)), ERRORS.schema)


def error_body(error: GatewayError, request_id: str) -> Json:
    """Return the body of an error for a request with an unread message."""
    body: Json = msgspec.to_builtins(refusal_of(None, error))
    return body


def convert_unread_error(error: GatewayError, inbound: Inbound) -> GatewayError:
    """Return the error of an unread request, with the headers of every response."""
    error = convert_error(error, inbound)
    error.headers = (*error.headers, VARY)
    return error


ERRORS = ErrorFormat(
    "mcp",
    error_body,
    describe_answer(McpFaultAnswer),
    convert_error=convert_unread_error,
    about=about,
)


# Revisions of the protocol: those that begin with `initialize`, and the one in which every message declares its
# version (2026-07-28: no handshake, headers that mirror the body, results that declare their kind).

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
CACHE_HINTS: Json = {"ttlMs": 300_000, "cacheScope": "public"}
ENCODED = "=?base64?"
ENCODED_END = "?="


def is_stateless(inbound: Inbound, call: MethodCall) -> bool:
    """Return whether the message declares its own version. Raises Fault for one that contradicts its headers."""
    header = inbound.header(VERSION_HEADER)
    meta = call.params.get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if header != STATELESS_VERSION and (version is None or version in HANDSHAKE_VERSIONS):
        return False
    if not isinstance(meta, dict) or missing(meta):
        names = ", ".join(missing(meta) if isinstance(meta, dict) else (VERSION_KEY, CAPABILITIES_KEY))
        raise Fault(INVALID_PARAMS, f"In this version params._meta must have {names}.", 400)
    _check_mirrors(inbound, call, header, version)
    if version != STATELESS_VERSION:
        raise Fault(
            UNSUPPORTED_VERSION,
            "This version of the protocol is not supported.",
            400,
            {"supported": list(SUPPORTED_VERSIONS), "requested": version},
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
