"""HTTP calls and files of workload identities.

The operator's environment and files name the addresses, which may be private: metadata servers are on link-local
addresses. Nothing of a request or of an organization reaches this module.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.configuration.address_checks import url_problem
from gateway.errors import GatewayError, IdentityFailed
from gateway.transport import Transport
from gateway.transport.upstream_responses import Answer

CALL_TIMEOUT_S = 5.0  # a metadata server answers within milliseconds, a token service within a second
ANSWER_LIMIT = 256 * 1024
FILE_LIMIT = 256 * 1024
FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded"}
# Error codes of OAuth (RFC 6749), Entra and AWS. Other texts may quote a token.
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,63}")
NAMES = ("error", "Code", "code", "status")


class IdentityCalls(Struct, frozen=True):
    """The network and the clock of token sources."""

    transport: Transport
    clock: Clock

    def call(self, place: str, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Return the answer of a call, whatever its status. `place` names the server in errors. IdentityFailed."""
        if url_problem(url, ("https", "http")):
            raise IdentityFailed(f"The address of the {place} is invalid.")
        try:
            return self.transport.request(
                method, url, headers, body, timeout_s=CALL_TIMEOUT_S, max_bytes=ANSWER_LIMIT, trusted=True
            )
        except GatewayError:
            raise IdentityFailed(f"The {place} did not answer.") from None

    def fetch(self, place: str, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, Any]:
        """Return the JSON object of a 200 answer. IdentityFailed."""
        answer = self.call(place, method, url, headers, body)
        if answer.status != 200:
            raise refusal(place, answer)
        return read_object(place, answer.body)

    def seconds_until(self, place: str, moment: object) -> float:
        """Return the seconds until a time in ISO 8601, or in seconds since 1970. IdentityFailed."""
        try:
            if isinstance(moment, int | float) or (str(moment).isascii() and str(moment).isdigit()):
                at = float(str(moment))
            else:
                at = _read_time(str(moment))
        except ValueError:
            raise IdentityFailed(f"The {place} returned an invalid expiry.") from None
        return at - self.clock.now_us() / SECOND_US


def refusal(place: str, answer: Answer) -> IdentityFailed:
    """Return the error for an answer that is no token: its status and its error code."""
    try:
        code = _code_in(orjson.loads(answer.body))
    except orjson.JSONDecodeError:
        code = ""
    return refused(place, answer.status, code)


def refused(place: str, status: int, code: str) -> IdentityFailed:
    """Return the error for a refusal with a code of the server ("": none)."""
    more = f" {code}" if CODE.fullmatch(code) else ""
    return IdentityFailed(f"The {place} answered {status}{more}.")


def read_object(place: str, body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. IdentityFailed."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise IdentityFailed(f"The {place} did not return a JSON object.")
    return value


def text_of(place: str, answer: Answer, name: str) -> str:
    """Return the text that is the body of a 200 answer. `name` is what the text is, for errors. IdentityFailed."""
    if answer.status != 200:
        raise refusal(place, answer)
    return text_in(place, {name: answer.body.decode("utf-8", "replace").strip()}, name)


def text_in(place: str, value: Mapping[str, Any], name: str) -> str:
    """Return a text that an answer must have. IdentityFailed."""
    text = value.get(name)
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise IdentityFailed(f"The {place} returned no {name}.")
    return text


def seconds_in(place: str, value: Mapping[str, Any], name: str) -> float:
    """Return a number of seconds that an answer must have, as a number or as text. IdentityFailed."""
    try:
        seconds = float(value[name])
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise IdentityFailed(f"The {place} returned no {name}.")
    return seconds


def read_file(name: str, path: str) -> str:
    """Return the stripped content of a file. `name` is what names the file, such as a variable. IdentityFailed.

    It is read each time, because the host replaces the file before its token expires.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_LIMIT + 1).decode().strip()
    except (OSError, UnicodeDecodeError, ValueError):
        raise IdentityFailed(f"The file of {name} cannot be read.") from None
    if not text or len(text) > FILE_LIMIT:
        raise IdentityFailed(f"The file of {name} is {'too long' if text else 'empty'}.")
    return text


def read_token_file(name: str, path: str) -> str:
    """Return a token from a file: one line without control characters. IdentityFailed."""
    token = read_file(name, path)
    if not token.isascii() or not token.isprintable():
        raise IdentityFailed(f"The file of {name} does not hold a token.")
    return token


def _code_in(body: Any) -> str:
    """Return the error code of a JSON body, "" for none: {"error": code}, {"error": {"status": code}}, {"Code": code}.

    A numeric code of Entra has the form AADSTS700016, which its documentation lists.
    """
    if not isinstance(body, dict):
        return ""
    numbers = body.get("error_codes")
    if isinstance(numbers, list) and numbers and isinstance(numbers[0], int):
        return f"AADSTS{numbers[0]}"
    for name in NAMES:
        value = body.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            return _code_in(value)
    return ""


def _read_time(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
