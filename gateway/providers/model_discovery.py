"""Finds the models of local engines and merges them into the current catalogue.

The engines use the OpenAI format, so their requests need no separate protocol. Decided against: one adapter per engine
(engines differ only in how they list their models) and guessing addresses (a base URL enables an engine).
"""

import hashlib
import logging
from collections.abc import Mapping as Environment
from typing import Any
from typing import Protocol as Interface

import orjson
from msgspec import Struct
from msgspec.structs import replace

from gateway.catalogue.base_urls import address_of, join_base
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.environment_credentials import base_url_for, credentials_for, settings_for
from gateway.errors import GatewayError
from gateway.providers.quirks import DETAILS_BY_LIST, DETAILS_BY_SHOW
from gateway.transport import Answer

# Reads an engine's description of its models as catalogue entries with a price of zero.
#
# Wire facts: OpenAI API reference, "List models"; vLLM (`max_model_len`), llama.cpp server (`meta`, and `models` with
# `capabilities`), Ollama API ("Show model information": `capabilities`, `model_info`), LM Studio REST API ("List
# models": `type`, `max_context_length`, `capabilities`).

MAX_NAME_LENGTH = 200
MODEL_LIMIT = 1000
FREE = (Prices(TokenRates(prompt=0, completion=0)),)


class LocalModel(Struct, frozen=True):
    """A model that an engine serves.

    Abilities that an engine does not report are assumed, since the engine refuses what it does not support.
    """

    name: str
    context_length: int = 0
    tools: bool = True
    vision: bool = True
    reasoning: bool = True
    embeds: bool = False


def read_list(wire: Any) -> list[LocalModel]:
    """Return the models of a list {data: [{id, …}]}, without invalid and repeated entries. ValueError for another
    shape."""
    entries = wire.get("data") if isinstance(wire, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a list of models")
    details = {entry.get("name"): entry for entry in wire.get("models") or () if isinstance(entry, dict)}
    models: dict[str, LocalModel] = {}
    for entry in entries[:MODEL_LIMIT]:
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable():
            models.setdefault(name, _read_entry(name, entry, details.get(name) or {}))
    return list(models.values())


def _read_entry(name: str, entry: dict[str, Any], details: dict[str, Any]) -> LocalModel:
    meta = entry.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    sizes = (entry.get("max_model_len"), entry.get("max_context_length"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    served = LocalModel(name, next((size for size in map(_size, sizes) if size), 0))
    kind = entry.get("type")
    if kind in ("llm", "vlm", "embeddings"):
        capabilities = entry.get("capabilities")
        tools = not isinstance(capabilities, list) or "tool_use" in capabilities
        return replace(served, tools=tools, vision=kind == "vlm", embeds=kind == "embeddings")
    capabilities = details.get("capabilities")
    if isinstance(capabilities, list) and capabilities:
        return replace(served, vision="multimodal" in capabilities, embeds=capabilities == ["embedding"])
    return served


def read_details(served: LocalModel, wire: Any) -> LocalModel:
    """Return the model with the details in {capabilities, model_info}; unchanged for another shape."""
    if not isinstance(wire, dict):
        return served
    info = wire.get("model_info")
    facts = info.items() if isinstance(info, dict) else ()
    size = next((_size(value) for name, value in facts if name.endswith(".context_length")), 0)
    served = replace(served, context_length=size or served.context_length)
    capabilities = wire.get("capabilities")
    if not isinstance(capabilities, list):
        return served
    return replace(
        served,
        tools="tools" in capabilities,
        vision="vision" in capabilities,
        reasoning="thinking" in capabilities,
        embeds="embedding" in capabilities and "completion" not in capabilities,
    )


def _size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    return 0


def write_model(provider: Provider, served: LocalModel) -> Model:
    """Return the catalogue entry `<provider>/<name>` with one mapping and prices of zero."""
    ident = f"{provider.id}/{served.name}"
    is_chat = not served.embeds
    mapping = Mapping(
        provider.id,
        ident,
        served.name,
        operations=("chat",) if is_chat else ("embeddings",),
        prices=FREE,
        context_length=served.context_length,
        tools=is_chat and served.tools,
        parallel_tool_calls=is_chat and served.tools,
        vision=is_chat and served.vision,
        reasoning=is_chat and served.reasoning,
        json_output=is_chat,
        json_output_schema=is_chat,
        source=provider.id,
    )
    inputs = ("text", "image") if mapping.vision else ("text",)
    return Model(
        id=ident,
        name=served.name,
        family=provider.id,
        context_length=served.context_length,
        input_modalities=inputs,
        output_modalities=("text",) if is_chat else ("embedding",),
        mappings=(mapping,),
    )


log = logging.getLogger(__name__)

QUERY_TIMEOUT_S = 5.0
BYTES_LIMIT = 8 * 1024 * 1024
MODELS_PATH = "/models"
SHOW = "/api/show"
FULL_LIST = "/api/v0/models"
DETAILS_LIMIT = 200  # models of an engine for which details are requested, one request for each


class HttpClient(Interface):
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
    """Queries every engine without a required key for which the operator set a base URL (LLM_<ID>_BASE_URL).

    The models are merged into `current`. Entries of the catalogue's files take precedence over discovered models of the
    same id. After a reload of the files, the next refresh merges again. An engine that does not answer keeps its
    previous models.
    """

    def __init__(self, client: HttpClient, current: CurrentCatalogue, environment: Environment[str, str]) -> None:
        self._client = client
        self._current = current
        self._environment = environment
        self._base: Catalogue | None = None
        self._merged: Catalogue | None = None
        self._discovered: dict[str, tuple[Model, ...]] = {}
        self._details: dict[tuple[str, str], LocalModel] = {}
        self._unreachable: set[str] = set()

    def engines(self) -> list[Provider]:
        """Return the providers that are queried."""
        providers = self._current.current().providers.values()
        return [provider for provider in providers if self._is_local(provider)]

    def refresh(self) -> bool:
        """Query all engines, and return whether the current catalogue changed. Never raises a GatewayError."""
        for provider in self.engines():
            try:
                served = self._list_models(provider)
            except (GatewayError, ValueError) as error:
                self._log_failure(provider, str(error))
                continue
            self._log_recovery(provider)
            self._discovered[provider.id] = tuple(write_model(provider, model) for model in served)
        return self._merge()

    def _is_local(self, provider: Provider) -> bool:
        keyless = not provider.key_required and not provider.address and provider.protocol == "openai"
        return keyless and bool(base_url_for(provider, self._environment))

    def _log_failure(self, provider: Provider, reason: str) -> None:
        """Log that an engine does not answer; only once until it answers again."""
        if provider.id not in self._unreachable:
            self._unreachable.add(provider.id)
            log.warning("%s does not list its models: %s", provider.name, reason)

    def _log_recovery(self, provider: Provider) -> None:
        if provider.id in self._unreachable:
            self._unreachable.discard(provider.id)
            log.info("%s lists its models again", provider.name)

    def _list_models(self, provider: Provider) -> list[LocalModel]:
        base = self._address(provider)
        root = base.removesuffix(provider.version_path)
        if DETAILS_BY_LIST in provider.quirks:
            full = self._get(provider, root + FULL_LIST)
            if full is not None:
                return read_list(full)
        listed = self._get(provider, base + MODELS_PATH)
        if listed is None:
            raise ValueError(f"{base + MODELS_PATH} returned no list")
        served = read_list(listed)
        if DETAILS_BY_SHOW in provider.quirks:
            self._drop_details(provider, {model.name for model in served})
            detailed = [self._with_details(provider, root, model) for model in served[:DETAILS_LIMIT]]
            served = detailed + served[DETAILS_LIMIT:]
        return served

    def _with_details(self, provider: Provider, root: str, model: LocalModel) -> LocalModel:
        """Return the model with its details, which are cached while the engine lists the model."""
        key = (provider.id, model.name)
        if key not in self._details:
            try:
                reported = self._get(provider, root + SHOW, orjson.dumps({"model": model.name}))
            except (GatewayError, ValueError):
                return model
            if reported is None:
                return model
            self._details[key] = read_details(model, reported)
        return self._details[key]

    def _drop_details(self, provider: Provider, listed: set[str]) -> None:
        """Drop the cached details of unlisted models, since the name may stand for another model later."""
        for key in [key for key in self._details if key[0] == provider.id and key[1] not in listed]:
            del self._details[key]

    def _address(self, provider: Provider) -> str:
        base_url = join_base(provider, base_url_for(provider, self._environment))
        return address_of(provider, base_url, settings_for(provider, self._environment)).rstrip("/")

    def _get(self, provider: Provider, url: str, body: bytes = b"") -> object:
        """Return the JSON of a 200 response, or None for any other status.

        Raises the transport's errors, and ValueError for a body that is not JSON.
        """
        headers = {"accept": "application/json"}
        keys = credentials_for(provider, self._environment)
        if keys:
            headers["authorization"] = f"Bearer {keys[0]}"
        if body:
            headers["content-type"] = "application/json"
        method = "POST" if body else "GET"
        answer = self._client.request(
            method, url, headers, body, timeout_s=QUERY_TIMEOUT_S, max_bytes=BYTES_LIMIT, trusted=True
        )
        if answer.status == 200:
            return orjson.loads(answer.body)
        return None

    def _merge(self) -> bool:
        current = self._current.current()
        if self._base is None or current is not self._merged:
            self._base = current
        models = [model for served in self._discovered.values() for model in served]
        merged = merge(self._base, models)
        if merged.version == current.version:
            return False
        self._merged = merged
        self._current.swap(merged)
        return True


def merge(base: Catalogue, models: list[Model]) -> Catalogue:
    """Return `base` with the models that it lacks, and with aliases for their names in lower case.

    The version is derived from that of `base` and from the added models.
    """
    added = [model for model in models if model.id not in base.models]
    if not added:
        return base
    aliases = {model.id.lower(): model.id for model in added if model.id.lower() != model.id}
    text = "\n".join(sorted(repr(model) for model in added))
    version = f"{base.version}+{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return Catalogue([*base.models.values(), *added], base.providers.values(), {**aliases, **base.aliases}, version)
