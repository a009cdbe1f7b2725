"""The workers' reports in the store for the operator's status command: version, catalogue and cooldowns."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from gateway.catalogue.catalogue import Catalogue
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.metering.counters import provider_label
from gateway.routing.cooldowns import provider_of
from gateway.routing.provider_health import Health
from gateway.store.documents import Documents
from gateway.store.installation_identity import WORKER_REPORTS as KIND

# A report is written when something changed, and renewed before it expires.
RENEWAL_INTERVAL_S = 60.0
TTL_S = 180.0


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker's last report: the version of its code, the version of the catalogue that it serves, and how many
    models, regions and keys are cooling down, as (provider, reason, count). `identities` are the providers with a
    workload identity, as (provider, source, expiry in µs or 0, failure). `secrets` are fingerprints of the secrets that
    it knows, so that a node does not use one that another lacks."""

    version: str
    catalogue: str
    resting: tuple[tuple[str, str, int], ...] = ()
    identities: tuple[tuple[str, str, int, str], ...] = ()
    secrets: tuple[str, ...] = ()


class WorkerPresence:
    """Reports this worker; `report` is called every few seconds."""

    def __init__(
        self, documents: Documents, control: Control, clock: Clock, version: str, secrets: tuple[str, ...] = ()
    ) -> None:
        self._documents = documents
        self._control = control
        self._clock = clock
        self._version = version
        self._secrets = secrets
        self._last: tuple[int, WorkerFacts] | None = None
        self._again = 0.0

    def report(
        self, catalogue: Catalogue, health: Health, identities: tuple[tuple[str, str, int, str], ...] = ()
    ) -> None:
        """Store the current facts unless they are stored already. Unavailable."""
        epoch = self._control.epoch
        files = catalogue.version.partition("+")[0]  # without the part for discovered models of local engines
        facts = WorkerFacts(self._version, files, _count(health.cooldowns.active()), identities, self._secrets)
        now = self._clock.monotonic()
        if not epoch or (self._last == (epoch, facts) and now < self._again):
            return
        self._documents.put(KIND, str(epoch), orjson.dumps(facts), TTL_S)
        self._last = (epoch, facts)
        self._again = now + RENEWAL_INTERVAL_S


def read_presence(documents: Documents) -> dict[int, WorkerFacts]:
    """Return the reports by epoch, including those of workers that died recently. Unavailable."""
    return {int(epoch): _read(stored) for epoch, stored in documents.entries(KIND)}


def _read(stored: bytes) -> WorkerFacts:
    facts = orjson.loads(stored)
    resting = tuple((provider, reason, count) for provider, reason, count in facts["resting"])
    # Workers of an older release report no identities.
    identities = tuple(
        (provider, source, expires_us, failure) for provider, source, expires_us, failure in facts.get("identities", ())
    )
    return WorkerFacts(facts["version"], facts["catalogue"], resting, identities)


def _count(cooling: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
    counts: dict[tuple[str, str], int] = {}
    for key, reason in cooling.items():
        place = provider_label(provider_of(key)), reason
        counts[place] = counts.get(place, 0) + 1
    return tuple(sorted((provider, reason, count) for (provider, reason), count in counts.items()))
