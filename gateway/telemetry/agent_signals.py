"""Forwards the OpenTelemetry exports of coding agents to the operator's collector, in the background.

Exports wait in memory, at most WAITING_BYTES of a worker and a quarter of it for one organization; further ones are
dropped and counted. Organizations take turns. The agent's request never waits for the collector.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from gateway.configuration.settings import Otel
from gateway.errors import GatewayError
from gateway.metering.counters import Counters
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import pause, spawn
from gateway.telemetry.collector import COLLECTOR_AWAY, COLLECTOR_BACK
from gateway.transport import Transport

COUNTER = "agent_exports_total"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
WAITING_BYTES = 16 << 20
ORGANIZATION_BYTES = WAITING_BYTES // 4
EXPORT_BYTES = 1_024  # of the memory and the request that each export takes beside its body
SENDERS = 2
TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 65_536
# Pauses before the repetitions of an export that the collector could not take.
RETRY_DELAYS_S = (1.0, 5.0)
RETRIED = frozenset((429, 502, 503, 504))


class AgentExport(NamedTuple):
    """An export that waits to be sent. `signal` is metrics, logs or traces."""

    signal: str
    media_type: str
    body: bytes
    organization_id: str

    @property
    def size(self) -> int:
        return len(self.body) + EXPORT_BYTES


class AgentSignals:
    """The forwarder of a worker."""

    def __init__(
        self,
        settings: Otel,
        environment: Mapping[str, str],
        transport: Transport,
        counters: Counters,
        states: StateLog,
    ) -> None:
        self._endpoint = settings.endpoint.rstrip("/") if settings.agent_signals else ""
        self._headers = read_headers(environment.get(HEADERS_VARIABLE, ""))
        self._transport = transport
        self._counters = counters
        self._states = states
        # by organization; the first one is next
        self._waiting: OrderedDict[str, deque[AgentExport]] = OrderedDict()
        self._bytes = Counter[str]()
        self._senders = 0

    @property
    def forwards(self) -> bool:
        """Return whether there is a collector."""
        return bool(self._endpoint)

    def take(self, export: AgentExport) -> None:
        """Queue an export, or only count it if there is no collector. Never waits."""
        if not self._endpoint:
            self._count(export, "discarded")
            return
        if (
            self._bytes.total() + export.size > WAITING_BYTES
            or self._bytes[export.organization_id] + export.size > ORGANIZATION_BYTES
        ):
            self._count(export, "dropped")
            return
        self._bytes[export.organization_id] += export.size
        self._waiting.setdefault(export.organization_id, deque()).append(export)
        if self._senders < SENDERS:
            self._senders += 1
            spawn(self._send_all)

    def _send_all(self) -> None:
        try:
            while self._waiting:
                export = self._next()
                try:
                    self._send(export)
                finally:
                    self._bytes[export.organization_id] -= export.size
                    if not self._bytes[export.organization_id]:
                        del self._bytes[export.organization_id]
        finally:
            self._senders -= 1

    def _next(self) -> AgentExport:
        organization_id, exports = self._waiting.popitem(last=False)
        export = exports.popleft()
        if exports:
            self._waiting[organization_id] = exports
        return export

    def _send(self, export: AgentExport) -> None:
        for pause_s in (*RETRY_DELAYS_S, None):
            status = self._post(export)
            if 200 <= status < 300:
                self._states.resolve(COLLECTOR_BACK)
                self._count(export, "forwarded")
                return
            self._states.fire(COLLECTOR_AWAY)
            if pause_s is None or (status and status not in RETRIED):
                break
            pause(pause_s)
        self._count(export, "failed")

    def _post(self, export: AgentExport) -> int:
        """Return the collector's status, 0 without an answer."""
        headers = {**self._headers, "content-type": export.media_type, "user-agent": "llmgateway"}
        url = f"{self._endpoint}/v1/{export.signal}"
        try:
            answer = self._transport.request(
                "POST", url, headers, export.body, timeout_s=TIMEOUT_S, max_bytes=MAX_ANSWER_BYTES, trusted=True
            )
        except GatewayError:
            return 0
        return answer.status

    def _count(self, export: AgentExport, outcome: str) -> None:
        self._counters.add(COUNTER, (export.signal, outcome))


def read_headers(text: str) -> dict[str, str]:
    """Return the headers of OpenTelemetry's variable: `name=value` pairs with commas between them, percent-encoded."""
    headers = {}
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            headers[unquote(name.strip()).lower()] = unquote(value.strip())
    return headers
