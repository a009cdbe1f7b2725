"""Further members of an error object, which help to find its cause, and the error envelope of the management API."""

from typing import Any, Literal, TypedDict, TypeVar

from msgspec import Meta

from gateway.errors import GatewayError

T = TypeVar("T")
# For an error object that may have details.
DETAILED = Meta(extra_json_schema={"additionalProperties": {"type": "string"}})


def with_details(content: T, error: GatewayError) -> T:
    """Return an error object with the error's details, which replace none of its members."""
    if not error.details:
        return content
    shown: Any = content
    detailed: Any = {**shown, **{name: text for name, text in error.details.items() if name not in shown}}
    result: T = detailed
    return result


# Error envelope of the management API (its public client prints `message`).


class _ErrorFields(TypedDict):
    status: int
    message: str
    code: str
    param: str
    requestId: str


class ManagementError(_ErrorFields):
    error: Literal[True]


class SignInError(_ErrorFields):
    """`error` is the code, which clients of the sign-in routes check (`account_deactivated` …)."""

    error: str


class DeviceError(TypedDict):
    """An error of RFC 8628, section 3.5, with the message that clients of the other routes print."""

    error: str
    error_description: str
    message: str


def error_body(error: GatewayError, request_id: str) -> ManagementError:
    return {
        "error": True,
        "status": error.status,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "requestId": request_id,
    }


def sign_in_error_body(error: GatewayError, request_id: str) -> SignInError:
    return {**error_body(error, request_id), "error": error.code}
