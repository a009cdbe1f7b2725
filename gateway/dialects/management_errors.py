"""Error envelope of the management API (its public client prints `message`)."""

from typing import Literal, TypedDict

from gateway.errors import GatewayError


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
