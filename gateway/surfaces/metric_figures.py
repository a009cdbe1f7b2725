"""The figures that `/metrics` shows."""

from msgspec import Struct

from gateway.metering.counters import GaugeRow, Histograms, Labels, Totals
from gateway.worker.services import Services


class Figures(Struct, frozen=True):
    """The metrics of a node at one moment."""

    totals: Totals
    histograms: Histograms
    gauges: dict[str, dict[Labels, list[float]]]
    texts: dict[str, str]
    installation: list[GaugeRow]
    books: dict[str, tuple[str, float]]

    @classmethod
    def of(cls, services: Services) -> "Figures":
        counters = services.background.counters
        return cls(
            counters.totals(),
            counters.histograms(),
            counters.node_gauges(),
            services.gauge_texts(),
            services.installation_rows(),
            services.billing.reconciliation_gauge.gauges(),
        )
