"""JSON-RPC 2.0 as the protocol uses it: one message per request, and errors as its bodies."""

from typing import Any, TypeGuard

import msgspec
from msgspec import UNSET, Struct

from gateway.configuration.settings import LimitSettings
from gateway.errors import GatewayError, InvalidRequest, RequestTooLarge
from gateway.runtime.threads import compute_if
from gateway.surfaces import caps
from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.http import ErrorFormat, Inbound
from gateway.surfaces.mcp.connection_checks import VARY, convert_error
from gateway.surfaces.mcp.mcp_answers import McpErrorAnswer, McpFaultAnswer, McpMessageAnswer
from gateway.surfaces.validation_errors import readable

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


def read(limits: LimitSettings, raw: bytes) -> MethodCall | None:
    """Return the call in a body; None for a message that needs no response (a notification, a client's response).

    Raises RequestTooLarge; InvalidRequest `invalid_json`, `request_too_complex`, `invalid_message`.
    """
    if len(raw) > MAX_BYTES:
        raise RequestTooLarge(f"A message may have at most {MAX_BYTES >> 20} MiB.")
    message = caps.read(limits, raw, _decode, raw)
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
