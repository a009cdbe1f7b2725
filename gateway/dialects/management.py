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
