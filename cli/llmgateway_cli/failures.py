"""The message of each failure of a request: connection, certificate, redirect, foreign answer, refusal."""

import json
import re
from typing import Any

import requests

from llmgateway_cli.errors import CliError, HttpError, SignedOut
from llmgateway_cli.sessions import SIGN_IN
from llmgateway_cli.settings import KEY_VARIABLE, SERVICE_VARIABLE, origin_of

MAX_TEXT = 500
REDIRECTS = range(300, 400)
TITLE = re.compile(r"<title[^>]*>\s*([^<]{1,100}?)\s*</title>", re.IGNORECASE)
CHECK_ADDRESS = "Check the address: --api-url and --gateway-url, or LLMGATEWAY_API_URL and LLMGATEWAY_GATEWAY_URL."
SCOPE_MISSING = "scope_missing"
CHANGE_SCOPES = (
    "`llmgateway auth status` shows the scopes of the service account; an owner or admin changes them on the page "
    "/console/automation. Operations for people need `llmgateway auth login`."
)
NEW_SERVICE_TOKEN = (
    f"Set {SERVICE_VARIABLE} to a valid token, or store one with `llmgateway auth login --service-account`."
)
CERTIFICATE_REASON = re.compile(r"certificate verify failed: ([^(]*)", re.IGNORECASE)


def is_lost_connection(error: requests.RequestException) -> bool:
    """Return whether a connection ended without an answer, which one more attempt may cure."""
    refused = isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError)
    timed_out = isinstance(error, requests.exceptions.Timeout)
    lost = isinstance(error, requests.exceptions.ConnectionError | requests.exceptions.ChunkedEncodingError)
    return lost and not refused and not timed_out and "refused" not in str(error)


def connection_failure(error: requests.RequestException, url: str, timeout_s: float) -> CliError:
    """Return the error of a request that got no complete answer."""
    origin = origin_of(url)
    if isinstance(error, requests.exceptions.SSLError):
        return _tls_failure(str(error), origin)
    if isinstance(error, requests.exceptions.ProxyError):
        return CliError(
            f"The proxy between you and {origin} does not answer.", "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
        )
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return CliError(f"{origin} cannot be reached.", CHECK_ADDRESS)
    if isinstance(error, requests.exceptions.Timeout):
        return CliError(
            f"{origin} did not answer within {timeout_s:g} s.",
            "Try again. If you were changing something, look first whether it was done.",
        )
    text = str(error)
    if "NameResolutionError" in text or "getaddrinfo" in text:
        return CliError(f"The name in {origin} is unknown.", CHECK_ADDRESS)
    if "refused" in text:
        return CliError(f"No service answers at {origin}.", f"Start it with `llmgateway serve`. {CHECK_ADDRESS}")
    return CliError(f"The connection to {origin} was lost ({type(error).__name__}).", "Try again.")


def _tls_failure(text: str, origin: str) -> CliError:
    """Return the error of a certificate, or of a server without TLS."""
    reason = CERTIFICATE_REASON.search(text)
    if reason is None:
        return CliError(f"{origin} does not speak TLS.", f"The service may need http://. {CHECK_ADDRESS}")
    return CliError(
        f"The certificate of {origin} could not be verified: {reason[1].strip()}.",
        "If your company has an own authority, name its file in REQUESTS_CA_BUNDLE. Check the computer's clock.",
    )


def refuse_redirect(reply: requests.Response) -> None:
    """Raise CliError for a redirect: it could send the credential to another service."""
    if reply.status_code not in REDIRECTS:
        return
    target = origin_of(reply.headers.get("Location", "")).removesuffix("://") or "another address"
    raise CliError(
        f"{origin_of(reply.url)} redirects to {target}; redirects are not followed because requests carry credentials.",
        "Use the final address as base URL.",
        request_id_of(reply),
    )


def request_id_of(reply: requests.Response) -> str:
    """Return the id by which the service logged the request, "" without one."""
    return str(reply.headers.get("x-request-id", ""))[:100]


def read_json(reply: requests.Response) -> Any:
    """Return the decoded body of a successful answer, None for 204. Raises CliError if it is no JSON."""
    if reply.status_code == 204:
        return None
    refuse_page(reply)
    try:
        return json.loads(reply.content)
    except ValueError:
        raise foreign_service(reply) from None


def refuse_page(reply: requests.Response) -> None:
    """Raise CliError if an HTML page came instead of an answer of the service."""
    beginning = reply.content[:2000].lstrip().lower()
    is_page = "html" in reply.headers.get("Content-Type", "") or beginning.startswith((b"<!doctype", b"<html"))
    if not is_page:
        return
    title = TITLE.search(reply.content[:5000].decode("utf-8", "replace"))
    named = f" with the title {title[1]!r}" if title else ""
    raise CliError(
        f"A web page{named} came instead of an answer of the service: status {reply.status_code} from "
        f"{origin_of(reply.url)}. A proxy or a sign-in page of the network may have answered.",
        f"Check HTTPS_PROXY and NO_PROXY. {CHECK_ADDRESS}",
        request_id_of(reply),
    )


def foreign_service(reply: requests.Response) -> CliError:
    """Return the error of an answer that no service of this kind would give."""
    return CliError(
        f"The answer of {origin_of(reply.url)} cannot be understood; it may be another service, or a newer one.",
        f"{CHECK_ADDRESS} `llmgateway doctor` shows what answers there.",
        request_id_of(reply),
    )


def check_management(reply: requests.Response, by_service_account: bool = False) -> None:
    """Raise the error of a management answer: SignedOut for 401, HttpError for every other status above 299."""
    if reply.ok:
        return
    error = refusal_of(reply)
    if by_service_account and reply.status_code == 401:
        raise SignedOut(error.message, NEW_SERVICE_TOKEN, request_id_of(reply))
    if isinstance(error, HttpError) and error.code == SCOPE_MISSING:
        error.remedy = CHANGE_SCOPES
    if reply.status_code == 401:
        raise SignedOut("Your session has expired or was ended.", SIGN_IN, request_id_of(reply))
    raise error


def check_sign_in(reply: requests.Response) -> None:
    """Raise HttpError for a refused sign-in: here 401 means a wrong password, or a missing code."""
    if not reply.ok:
        raise refusal_of(reply)


def check_gateway(reply: requests.Response) -> None:
    """Raise HttpError for an inference answer with a status above 299."""
    if reply.ok:
        return
    remedy = ""
    if reply.status_code == 401:
        remedy = f"Check {KEY_VARIABLE}, or store a key with `llmgateway auth login --key`."
    raise refusal_of(reply, remedy)


def refusal_of(reply: requests.Response, remedy: str = "") -> CliError:
    """Return the error of a status, or that of a foreign service if the answer contains no message. Raises CliError for
    an HTML page."""
    refuse_page(reply)
    message, code = read_error(reply)
    if not message:
        if reply.status_code < 500:
            return foreign_service(reply)
        message = f"The service failed with status {reply.status_code}."
    if not remedy and reply.status_code >= 500:
        remedy = "Try again later; give the request id to the operator of the service."
    if not remedy and reply.status_code == 429:
        remedy = "Try again later."
        wait = reply.headers.get("Retry-After", "")
        if wait.isascii() and wait.isdigit():
            remedy = f"Try again in {wait} s."
    return HttpError(reply.status_code, message, remedy, request_id_of(reply), code)


def read_error(reply: requests.Response) -> tuple[str, str]:
    """Return message and code of an error answer, both "" if there are none.

    The management API answers `{message}` or `{error: slug, message}`, the inference API `{error: {message, code}}`.
    """
    try:
        body = json.loads(reply.content)
    except ValueError:
        return "", ""
    if not isinstance(body, dict):
        return "", ""
    error = body.get("error")
    if isinstance(error, dict):
        return _text(error.get("message")), _text(error.get("code") or error.get("type"))
    message = _text(body.get("error_description")) or _text(body.get("message")) or _text(error)
    return message, _text(body.get("code") or error)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return ""


def check_event_stream(reply: requests.Response) -> None:
    """Raise CliError if a streamed answer is no event stream."""
    if not reply.headers.get("Content-Type", "").startswith("text/event-stream"):
        refuse_page(reply)
        raise foreign_service(reply)


def read_event(data: str, reply: requests.Response) -> Any:
    """Return the decoded data of an event. Raises HttpError if it reports an error."""
    try:
        event = json.loads(data)
    except ValueError:
        raise foreign_service(reply) from None
    if not isinstance(event, dict):
        raise foreign_service(reply)
    error = event.get("error")
    if isinstance(error, dict):
        message = _text(error.get("message")) or "The answer failed."
        code = _text(error.get("code"))
        raise HttpError(reply.status_code, message, request_id=request_id_of(reply), code=code)
    return event
