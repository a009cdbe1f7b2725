"""The HTTP client: requests to the management API and to the inference API, and every way in which they fail."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests

from llmgateway_cli import failures, waits
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_transfer import PIECE_BYTES, FileForm
from llmgateway_cli.output import Output
from llmgateway_cli.sessions import Session, current_session
from llmgateway_cli.settings import KEY_VARIABLE, LOOPBACK_HOSTS, Settings, origin_of
from llmgateway_cli.shapes import object_of, text_of
from llmgateway_cli.versions import USER_AGENT

CONNECT_TIMEOUT_S = 10.0
SOURCE = "llmgateway-cli"
SESSION_PATH = "/auth/get-session"  # the only management request that names no origin
ACCEPT = {True: "text/event-stream", False: "application/json"}  # by whether the answer is streamed
Query = Mapping[str, str | int]
PAGE_SIZE = 500


class DeviceAnswer:
    """An answer of the device flow: pending and refused requests are answers too."""

    def __init__(self, reply: requests.Response) -> None:
        self._reply = reply
        self.status = reply.status_code
        self.ok = reply.ok

    def checked(self) -> Any:
        """Return the decoded body. Raises HttpError for an error status."""
        failures.check_sign_in(self._reply)
        return failures.read_json(self._reply)

    def error_slug(self) -> str:
        """Return the error code of RFC 8628, "" without one."""
        return failures.read_error(self._reply)[1]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `repeatable`: it may be sent again although the service may have received it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Any = None
    query: Query | None = None
    timeout_s: float | None = None
    repeatable: bool = False
    stream: bool = False
    form: FileForm | None = None


class ApiClient:
    """Sends requests. Every failure is a CliError that says what happened and what to do next."""

    def __init__(self, settings: Settings, output: Output) -> None:
        self._settings = settings
        self._output = output
        self._session = requests.Session()
        # Cookies of answers are not kept: the session in use is always the stored one.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # A .netrc file could replace the Authorization header; proxies and certificates come from the environment.
        self._session.auth = _no_other_credentials
        self._session.headers["User-Agent"] = USER_AGENT

    def management(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        session: Session | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the decoded answer of the management API, None for 204. `session` replaces the stored one.

        Raises SignedOut before any request if there is no session.
        """
        used = session or current_session(self._settings)
        self._output.hide(used.token or used.cookie.partition("=")[2])
        reply = self._send(self._management_call(method, path, used.headers(), body, query, timeout_s))
        failures.check_management(reply, used.is_service_account)
        return failures.read_json(reply)

    def pages(self, path: str, query: Query) -> Iterator[dict[str, Any]]:
        """Yield the answers with the pages of a list of the management API. A service that has no pages answers the
        whole list, which is the only page then."""
        asked: dict[str, str | int] = {**query, "limit": PAGE_SIZE}
        seen = set()
        while True:
            answer = object_of(self.management("GET", path, query=asked))
            yield answer
            cursor = answer.get("next")
            if not isinstance(cursor, str) or not cursor or cursor in seen:
                return
            seen.add(cursor)
            asked["cursor"] = cursor

    def device_request(self, path: str, body: Any) -> "DeviceAnswer":
        """Return the answer to a request of the device flow, whatever its status."""
        return DeviceAnswer(self._attempt(self._management_call("POST", path, {}, body), False))

    def sign_in_by_password(self, body: Any) -> Session:
        """Return the session that the service sets as a cookie. Raises HttpError if it refuses the sign-in."""
        reply = self._send(self._management_call("POST", "/auth/sign-in/email", {}, body))
        failures.check_sign_in(reply)
        user = object_of(failures.read_json(reply), "user")
        for header in reply.raw.headers.getlist("Set-Cookie"):
            cookie = header.partition(";")[0].strip()
            if "session_token" in cookie.partition("=")[0] and cookie.partition("=")[2]:
                return Session(self._settings.api_url, text_of(user, "email"), cookie=cookie)
        raise failures.foreign_service(reply)

    def _management_call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Any,
        query: Query | None = None,
        timeout_s: float | None = None,
    ) -> Call:
        url = self._settings.api_url + path
        own = {"Accept": "application/json", **headers}
        if path != SESSION_PATH:
            own["Origin"] = origin_of(self._settings.dashboard_url)
        return Call(method, url, own, body, query, timeout_s, repeatable=method == "GET")

    def gateway(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        key: str | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the decoded answer of the inference API. `key` replaces the key of the settings; "" sends none."""
        reply = self._send(self._gateway_call(method, path, body, query, key, timeout_s))
        failures.check_gateway(reply)
        return failures.read_json(reply)

    def gateway_upload(self, path: str, form: FileForm) -> Any:
        """Return the decoded answer to a form with a file."""
        reply = self._send(replace(self._gateway_call("POST", path, None, None, None, None), form=form))
        failures.check_gateway(reply)
        return failures.read_json(reply)

    def gateway_download(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of an answer in pieces. Raises CliError for a download that ends early."""
        call = self._gateway_call("GET", path, None, None, None, None, stream=True)
        reply = self._send(call)
        failures.check_gateway(reply)
        with closing(reply):
            try:
                yield from reply.iter_content(PIECE_BYTES)
            except requests.RequestException as error:
                raise failures.connection_failure(error, reply.url, self._settings.timeout_s) from None

    def gateway_response(self, path: str, *, key: str) -> requests.Response:
        """Return the response of the inference API whatever its status, to check a key or an installation."""
        return self._send(self._gateway_call("GET", path, None, None, key, None))

    def gateway_stream(self, path: str, body: Any, *, key: str | None = None) -> Iterator[Any]:
        """Yield the decoded data of each event of a streamed answer until `[DONE]`. Raises CliError for an error event
        and for a stream that ends early."""
        call = self._gateway_call("POST", path, body, None, key, None, stream=True)
        reply = self._send(call)
        failures.check_gateway(reply)
        failures.check_event_stream(reply)
        with closing(reply):
            yield from self._events(reply)

    def _events(self, reply: requests.Response) -> Iterator[Any]:
        try:
            for data in read_events(reply.iter_content(piece_size(reply))):
                if data == "[DONE]":
                    return
                event = failures.read_event(data, reply)
                yield event
        except requests.RequestException as error:
            raise failures.connection_failure(error, reply.url, self._settings.timeout_s) from None
        raise CliError(
            "The answer ended before it was complete.",
            "Send the request again; you may have been charged for the part that arrived.",
            failures.request_id_of(reply),
        )

    def _gateway_call(
        self,
        method: str,
        path: str,
        body: Any,
        query: Query | None,
        key: str | None,
        timeout_s: float | None,
        stream: bool = False,
    ) -> Call:
        own = {"Accept": ACCEPT[stream], "x-source": SOURCE}
        token = key
        if token is None:
            token = self._settings.api_key
        if token:
            self._output.hide(token)
            own["Authorization"] = f"Bearer {checked_key(token)}"
        url = self._settings.gateway_url + path
        repeatable = method == "GET"
        return Call(method, url, own, body, query, timeout_s, repeatable, stream)

    def _send(self, call: Call) -> requests.Response:
        """Send a request; wait once if the service says that it is busy, and repeat once after a lost connection if
        the request cannot happen twice."""
        with self._output.progress(f"Waiting for {origin_of(call.url)}"):
            reply = self._attempt(call, call.repeatable)
        delay_s = waits.delay_of(reply, call.repeatable)
        if delay_s is None:
            return reply
        reply.close()
        self._output.info(f"{waits.reason_of(reply)} Trying again in {delay_s:g} s.")
        waits.sleep(delay_s)
        with self._output.progress(f"Waiting for {origin_of(call.url)}"):
            return self._attempt(call, False)

    def _attempt(self, call: Call, again: bool) -> requests.Response:
        headers = dict(call.headers)
        timeout_s = call.timeout_s or self._settings.timeout_s
        data = None
        if call.body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(call.body).encode()
        if call.form is not None:
            headers["Content-Type"] = call.form.content_type
        try:
            reply = self._session.request(
                call.method,
                call.url,
                params=call.query,
                data=call.form or data,
                headers=headers,
                timeout=(min(CONNECT_TIMEOUT_S, timeout_s), timeout_s),
                allow_redirects=False,
                proxies=proxies_of(call.url),
                stream=call.stream,
            )
        except requests.RequestException as error:
            if again and failures.is_lost_connection(error):
                return self._attempt(call, False)
            raise failures.connection_failure(error, call.url, timeout_s) from None
        except ValueError:  # the library reads the address of a redirect, which is not followed
            text = f"{origin_of(call.url)} redirects to an address that cannot be read."
            raise CliError(text, failures.CHECK_ADDRESS) from None
        failures.refuse_redirect(reply)
        return reply


def checked_key(token: str) -> str:
    """Return an API key that can be a header. Raises CliError for text that was copied with something else."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CliError(
            "The API key contains spaces or other characters that no key has.",
            f"Copy it again, to {KEY_VARIABLE} or with `llmgateway auth login --key`.",
        )
    return token


def piece_size(reply: requests.Response) -> int | None:
    """Return how many bytes of a streamed answer to wait for. The pieces of chunked transfer are read as they are;
    anything else would be read to its end, so its bytes are read one by one."""
    if reply.headers.get("Transfer-Encoding") == "chunked":
        return None
    return 1


def proxies_of(url: str) -> dict[str, str]:
    """Return the proxies that replace those of the environment. This computer's services need none."""
    parts = urlsplit(url)
    if parts.hostname in LOOPBACK_HOSTS:
        return {parts.scheme: ""}
    return {}


def _no_other_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def read_events(chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield the data of each server-sent event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    data: list[str] = []
    for line in _lines(chunks):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in complete:
            yield line.decode("utf-8", "replace")
