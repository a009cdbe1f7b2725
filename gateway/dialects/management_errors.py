"""Error envelope of the management API (its public client prints `message`)."""

from gateway.errors import GatewayError


def error_body(error: GatewayError, request_id: str) -> dict:
    """Return `{error: true, status, message, code, param, requestId}`."""
    return {
        "error": True,
        "status": error.status,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "requestId": request_id,
    }


def sign_in_error_body(error: GatewayError, request_id: str) -> dict:
    """Return the same envelope with the code as `error`, which clients of the sign-in routes check
    (`account_deactivated` …).
    """
    return {**error_body(error, request_id), "error": error.code}
