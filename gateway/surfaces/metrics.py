"""`/metrics`: the node's metrics as Prometheus text, for the operator's token, or on a separate port."""

import hmac
from typing import TYPE_CHECKING

from gateway.errors import NotFound, Unauthenticated
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.metric_figures import Figures
from gateway.surfaces.web.auth import token_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import OPENAI
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.surfaces import prometheus_text
else:
    prometheus_text = LazyImport("gateway.surfaces.prometheus_text")


def metrics(services: Services, inbound: Inbound) -> Outbound:
    """Metrics of all workers of this node as Prometheus text. Requires the token of GATEWAY_METRICS_TOKEN, since they
    reveal what is spent and where."""
    expected = services.settings.secret("GATEWAY_METRICS_TOKEN")
    if not expected:
        raise NotFound("Metrics are disabled; the operator sets GATEWAY_METRICS_TOKEN.", code="metrics_off")
    if not hmac.compare_digest(token_of(inbound).encode(), expected.encode()):
        raise Unauthenticated("Send the operator's token as 'Authorization: Bearer <token>'.", code="metrics_token")
    kind, text = expose(services)
    headers = [("Content-Type", kind), ("Cache-Control", "no-store"), ("x-request-id", inbound.shown_id)]
    return Outbound(200, headers, text)


def expose(services: Services) -> tuple[str, bytes]:
    """Return the content type and the text."""
    return compute(_write, Figures.of(services))


def _write(figures: Figures) -> tuple[str, bytes]:
    """Write the text, in a thread: thousands of series take longer than other requests may wait, and the first call
    imports the library."""
    return prometheus_text.write(figures)


SAMPLE = {"type": "string", "examples": ['llmgateway_requests_total{operation="chat",status="200"} 128.0\n']}
METRICS = About(
    "Show metrics (Prometheus text)", "Service", answer=SAMPLE, errors=(401, 404), access="operator", media="text/plain"
)
SURFACE = Surface("metrics", OPENAI, (Operation("GET", "/metrics", metrics, hot=True, about=METRICS),))
