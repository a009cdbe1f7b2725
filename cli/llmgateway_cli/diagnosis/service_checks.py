"""Checks of the service: what answers, the clock, the key, the session, the versions."""

import platform
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from llmgateway_cli import __version__
from llmgateway_cli.context import ClientContext
from llmgateway_cli.diagnosis.findings import ERROR, OK, WARNING, Finding, failed
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.sessions import SIGN_IN, current_session, stored_session
from llmgateway_cli.settings import GATEWAY_URL, KEY_VARIABLE, Settings
from llmgateway_cli.values import show_usd

if TYPE_CHECKING:
    from llmgateway_cli.http_client import ApiClient

MAX_SKEW_S = 60


class ServiceChecks:
    """The checks of one service. `answers` is false after it could not be reached: then the others are left out."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._settings = context.settings
        self._document: dict[str, Any] = {}
        self.answers = False

    def check_service(self) -> Iterator[Finding]:
        """Check what answers at the addresses of the models and of the management API."""
        try:
            self._document = self._read_root(self._context.client, self._settings.gateway_url)
            self.answers = True
            yield Finding("service", OK, f"A gateway answers at {self._settings.gateway_url}.")
        except CliError as error:
            yield failed("service", error)
        if self._settings.api_url == self._settings.gateway_url:
            return
        try:
            other = Settings(self._settings.environment, {GATEWAY_URL: self._settings.api_url})
            self._read_root(type(self._context.client)(other, self._context.output), self._settings.api_url)
            yield Finding("service", OK, f"A gateway answers at {self._settings.api_url}.")
        except CliError as error:
            yield failed("service", error)

    def _read_root(self, client: "ApiClient", url: str) -> dict[str, Any]:
        document = client.gateway("GET", "/", key="")
        if not isinstance(document, dict) or "health" not in document:
            raise CliError(
                f"Something answers at {url}, but it is no gateway of this kind.",
                "Check the address; it must not end with /v1.",
            )
        return document

    def check_clock(self) -> Iterator[Finding]:
        """Compare the clock of this machine with the service's."""
        reply = self._context.client.gateway_response("/", key="")
        try:
            theirs = parsedate_to_datetime(reply.headers.get("Date", "")).timestamp()
        except ValueError:
            yield Finding("clock", OK, "The service sends no time to compare with.")
            return
        skew_s = round(time.time() - theirs)
        if abs(skew_s) <= MAX_SKEW_S:
            yield Finding("clock", OK, f"It differs from the service's by {abs(skew_s)} s.")
            return
        direction = "ahead of" if skew_s > 0 else "behind"
        yield Finding(
            "clock",
            ERROR,
            f"The clock of this machine is {abs(skew_s)} s {direction} the service's.",
            "Set it, for example with `timedatectl set-ntp true`: certificates and expiry times depend on it.",
        )

    def check_key(self) -> Iterator[Finding]:
        """Check the API key and what is left of its limit."""
        if not self._settings.api_key:
            yield Finding(
                "key",
                WARNING,
                "There is no API key; models and agents need one.",
                f"Create one with `llmgateway keys create`, and set {KEY_VARIABLE} or store it with "
                "`llmgateway auth login --key`.",
            )
            return
        source = KEY_VARIABLE if self._settings.environment.get(KEY_VARIABLE, "").strip() else "the stored key"
        try:
            answer = self._context.client.gateway("GET", "/v1/key")
        except HttpError as error:
            if error.status == 404:
                yield Finding("key", OK, f"{source}: this service does not describe keys.")
            else:
                yield failed("key", error)
            return
        except CliError as error:
            yield failed("key", error)
            return
        data = (answer.get("data") if isinstance(answer, dict) else None) or {}
        yield self._judge_limit(source, data)

    def _judge_limit(self, source: str, data: dict[str, Any]) -> Finding:
        used = float(data.get("usage") or 0)
        label = f"{source} ({data.get('label') or 'no description'})"
        if data.get("limit") is None:
            return Finding("key", OK, f"{label} is valid and has used {show_usd(used)}.")
        limit = float(data["limit"])
        if used < limit:
            return Finding("key", OK, f"{label} is valid and has used {show_usd(used)} of {show_usd(limit)}.")
        return Finding(
            "key",
            ERROR,
            f"{label} has used its limit of {show_usd(limit)}.",
            "Raise the limit with `llmgateway keys limit ID -l USD`.",
        )

    def check_session(self) -> Iterator[Finding]:
        """Check the sign-in, which commands on keys, budgets and usage need."""
        try:
            if stored_session(self._settings) is None and not self._settings.service_token:
                yield Finding("session", WARNING, "You are not signed in; account commands need it.", SIGN_IN)
                return
            session = current_session(self._settings)
            answer = self._context.client.management("GET", "/auth/get-session", session=session)
        except CliError as error:
            yield failed("session", error)
            return
        if isinstance(answer, dict) and isinstance(answer.get("serviceAccount"), dict):
            yield Finding("session", OK, f"Service account {answer['serviceAccount'].get('name')}.")
            return
        user = answer.get("user") if isinstance(answer, dict) else None
        if not isinstance(user, dict):
            yield Finding("session", ERROR, "Your session has expired or was ended.", SIGN_IN)
            return
        yield Finding("session", OK, f"Signed in as {user.get('email')}.")

    def check_versions(self) -> Iterator[Finding]:
        """Compare the version of this client with the service's."""
        theirs = str(self._document.get("version") or "")
        ours = f"llmgateway-cli {__version__}, Python {platform.python_version()}"
        if not theirs:
            yield Finding("versions", OK, f"{ours}; the service names no version.")
        elif theirs.split(".")[0] == __version__.split(".")[0]:
            yield Finding("versions", OK, f"{ours}; service {theirs}.")
        else:
            yield Finding(
                "versions",
                WARNING,
                f"{ours} and service {theirs} have different major versions.",
                f"Install a client of version {theirs.split('.')[0]}.",
            )
