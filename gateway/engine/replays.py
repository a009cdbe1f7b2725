"""Checks whether a stored answer may be returned to this caller, by the rules in force now."""

from collections.abc import Sequence

from gateway.callers import access as access_module
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import CurrentCatalogue
from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.metering.models import SETTLEMENT
from gateway.store.database import Database

FRAMES_PER_TURN = 500
SERVED = f"SELECT provider, served FROM usage WHERE request IN ({{marks}}) AND kind = {SETTLEMENT} AND error IS NULL"


class Replays:
    """Checks the providers of an answer from the usage rows of its request; deleted rows forbid nothing."""

    def __init__(self, database: Database, catalogue: CurrentCatalogue, clock: Clock) -> None:
        self._database = database
        self._catalogue = catalogue
        self._clock = clock

    def check(self, caller: Caller, ip: str, request_ids: Sequence[str]) -> None:
        """Forbidden when a rule or policy excludes the caller's address, or the provider or model of one of the
        requests (32 hex digits each). Unavailable when the store cannot be reached."""
        access_module.check_address(caller.rules, ip)
        refuse = access_module.predicate(caller.rules, self._clock.now_us())
        if refuse is None:
            return
        for provider_id, model_id in self._served(request_ids):
            mapping, provider = self._find(provider_id, model_id)
            reason = refuse(mapping, provider)
            if reason:
                raise access_module.forbid(reason)

    def _served(self, request_ids: Sequence[str]) -> set[tuple[str, str]]:
        keys = [bytes.fromhex(ident) for ident in request_ids]
        served: set[tuple[str, str]] = set()
        for start in range(0, len(keys), FRAMES_PER_TURN):
            part = keys[start : start + FRAMES_PER_TURN]
            marks = ", ".join("?" * len(part))
            rows = self._database.query_rows(SERVED.format(marks=marks), part)
            served |= {(provider, model) for provider, model in rows}
        return served

    def _find(self, provider_id: str, model_id: str) -> tuple[Mapping, Provider]:
        """Return the catalogue's current mapping and provider. Removed and custom ones are represented by their
        names."""
        catalogue = self._catalogue.current()
        model = catalogue.find(model_id)
        mappings = model.mappings if model is not None else ()
        mapping = next((mapping for mapping in mappings if mapping.provider == provider_id), None)
        provider = catalogue.provider(provider_id)
        return (
            mapping or Mapping(provider_id, model_id, model_id),
            provider or Provider(provider_id, provider_id, "openai"),
        )
