"""Finds the models of local engines and merges them into the catalogue in force."""

import hashlib
import logging
from collections.abc import Mapping as Environment
from typing import Protocol as Interface

import orjson

from gateway.catalogue.base_urls import address_of, join_base
from gateway.catalogue.catalogue import Catalogue, Current
from gateway.catalogue.entries import Model, Provider
from gateway.catalogue.environment_credentials import base_url_for, credentials_for, settings_for
from gateway.errors import GatewayError
from gateway.providers.local.engines import LocalModel, read_details, read_list, write_model
from gateway.providers.quirks import DETAILS_BY_LIST, DETAILS_BY_SHOW
from gateway.transport import Answer

log = logging.getLogger(__name__)

ASK_S = 5.0
BYTES_LIMIT = 8 * 1024 * 1024
LIST = "/models"
SHOW = "/api/show"
FULL_LIST = "/api/v0/models"
DETAILS_LIMIT = 200  # of an engine's models, asked for one by one


class Asker(Interface):
    """The part of the transport that discovery uses."""

    def request(
        self,
        method: str,
        url: str,
        headers: Environment[str, str] = ...,
        body: bytes = b"",
        *,
        timeout_s: float = ...,
        max_bytes: int = ...,
        trusted: bool = ...,
    ) -> Answer: ...


class Discovery:
    """Queries every engine that needs no key and whose base URL the operator set (LLM_<ID>_BASE_URL). The models found
    are merged into `current`: entries of the catalogue's files win over found ones of the same id, and a reload of the
    files is followed at the next refresh. An engine that does not answer keeps its previous models."""

    def __init__(self, asker: Asker, current: Current, environment: Environment[str, str]) -> None:
        self._asker = asker
        self._current = current
        self._environment = environment
        self._base: Catalogue | None = None
        self._merged: Catalogue | None = None
        self._found: dict[str, tuple[Model, ...]] = {}
        self._details: dict[tuple[str, str], LocalModel] = {}
        self._away: set[str] = set()

    def engines(self) -> list[Provider]:
        """The providers that are asked."""
        providers = self._current.current().providers.values()
        return [provider for provider in providers if self._is_local(provider)]

    def refresh(self) -> bool:
        """Ask all engines; whether the catalogue in force was changed. Never raises a GatewayError."""
        for provider in self.engines():
            try:
                served = self._ask(provider)
            except (GatewayError, ValueError) as error:
                self._note(provider, str(error))
                continue
            self._note(provider, "")
            self._found[provider.id] = tuple(write_model(provider, one) for one in served)
        return self._merge()

    def _is_local(self, provider: Provider) -> bool:
        keyless = not provider.key_required and not provider.address and provider.protocol == "openai"
        return keyless and bool(base_url_for(provider, self._environment))

    def _note(self, provider: Provider, trouble: str) -> None:
        """Log an engine's coming and going once each."""
        if trouble and provider.id not in self._away:
            self._away.add(provider.id)
            log.warning("%s does not list its models: %s", provider.name, trouble)
        elif not trouble and provider.id in self._away:
            self._away.discard(provider.id)
            log.info("%s lists its models again", provider.name)

    def _ask(self, provider: Provider) -> list[LocalModel]:
        base = self._address(provider)
        root = base.removesuffix(provider.version_path)
        if DETAILS_BY_LIST in provider.quirks:
            full = self._get(provider, root + FULL_LIST)
            if full is not None:
                return read_list(full)
        listed = self._get(provider, base + LIST)
        if listed is None:
            raise ValueError(f"{base + LIST} gave no list")
        served = read_list(listed)
        if DETAILS_BY_SHOW in provider.quirks:
            self._forget(provider, {one.name for one in served})
            served = [self._show(provider, root, one) for one in served[:DETAILS_LIMIT]] + served[DETAILS_LIMIT:]
        return served

    def _show(self, provider: Provider, root: str, one: LocalModel) -> LocalModel:
        """The model with its details, asked for once while the engine lists it alike."""
        key = (provider.id, one.name)
        if key not in self._details:
            try:
                reported = self._get(provider, root + SHOW, orjson.dumps({"model": one.name}))
            except (GatewayError, ValueError):
                return one
            if reported is None:
                return one
            self._details[key] = read_details(one, reported)
        return self._details[key]

    def _forget(self, provider: Provider, listed: set[str]) -> None:
        """A model that is not listed any more may come back as another."""
        for key in [key for key in self._details if key[0] == provider.id and key[1] not in listed]:
            del self._details[key]

    def _address(self, provider: Provider) -> str:
        base_url = join_base(provider, base_url_for(provider, self._environment))
        return address_of(provider, base_url, settings_for(provider, self._environment)).rstrip("/")

    def _get(self, provider: Provider, url: str, body: bytes = b"") -> object:
        """The JSON of a 200 answer, None for any other status. Raises the transport's errors, ValueError if no JSON."""
        headers = {"accept": "application/json"}
        keys = credentials_for(provider, self._environment)
        if keys:
            headers["authorization"] = f"Bearer {keys[0]}"
        if body:
            headers["content-type"] = "application/json"
        method = "POST" if body else "GET"
        answer = self._asker.request(method, url, headers, body, timeout_s=ASK_S, max_bytes=BYTES_LIMIT, trusted=True)
        if answer.status == 200:
            return orjson.loads(answer.body)
        return None

    def _merge(self) -> bool:
        current = self._current.current()
        if self._base is None or current is not self._merged:
            self._base = current
        models = [model for found in self._found.values() for model in found]
        merged = merge(self._base, models)
        if merged.version == current.version:
            return False
        self._merged = merged
        self._current.swap(merged)
        return True


def merge(base: Catalogue, models: list[Model]) -> Catalogue:
    """`base` with the models that it lacks; small letters find them too. The version names base and models."""
    added = [model for model in models if model.id not in base.models]
    if not added:
        return base
    aliases = {model.id.lower(): model.id for model in added if model.id.lower() != model.id}
    text = "\n".join(sorted(repr(model) for model in added))
    version = f"{base.version}+{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return Catalogue([*base.models.values(), *added], base.providers.values(), {**aliases, **base.aliases}, version)
