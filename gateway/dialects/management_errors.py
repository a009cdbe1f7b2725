"""The management API's error envelope (its public client prints `message`)."""

from gateway.errors import GatewayError


def error_body(error: GatewayError, request_id: str) -> dict:
    """`{error: true, status, message, code, param, requestId}`."""
    return {
        "error": True,
        "status": error.status,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "requestId": request_id,
    }


def sign_in_error_body(error: GatewayError, request_id: str) -> dict:
    """The same with the code as `error`: what clients of the sign-in routes look at (`account_deactivated` …)."""
    return {**error_body(error, request_id), "error": error.code}
