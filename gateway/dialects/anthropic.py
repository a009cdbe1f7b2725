"""Words of the Anthropic messages dialect: error types by status.

Wire facts: Anthropic API reference, "Errors"; `param` and `code` are members of our own that its SDKs ignore.
"""

from gateway.errors import GatewayError

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """The error type for a status; other 5xx are api_error, other 4xx invalid_request_error."""
    return ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def error_body(error: GatewayError, request_id: str) -> dict:
    """`{type: "error", error: {type, message, param, code}, request_id}`."""
    inner = {
        "type": error_type(error.status),
        "message": error.message,
        "param": error.param,
        "code": error.code,
    }
    if error.details:
        inner.update(error.details)
    return {"type": "error", "error": inner, "request_id": request_id}
