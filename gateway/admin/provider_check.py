"""A test call with an organization's own provider key: one short question, not recorded and not billed here.

A provider is asked for the first of QUESTIONS that it has a model for: those at the end cost more.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.provider_keys import ProviderKeys
from gateway.callers.access import CUSTOM
from gateway.callers.authentication import Caller
from gateway.callers.credential_sources import API_KEYS, OWN_SOURCE
from gateway.callers.stored_keys import StoredCredential as StoredKey
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.lifecycle import has_ended
from gateway.catalogue.prices import rates_at
from gateway.clock import Clock
from gateway.engine.custom_models import CustomModels
from gateway.errors import GatewayError, InvalidRequest
from gateway.neutral.chat import ChatRequest, Conversation, Requirements, Sampling
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.events import Failed
from gateway.neutral.images import ImagesInput, ImagesRequest
from gateway.neutral.parts import Message, Text
from gateway.neutral.request import Request
from gateway.neutral.speech import SpeechInput, SpeechRequest
from gateway.neutral.structured import DecisionRequest, ModerationRequest, RerankInput, RerankRequest
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Credential, Target
from gateway.providers.upstream import Upstreams

TIMEOUT_S = 20.0
# Enough for every provider's lower bound of an output limit.
OUTPUT_TOKENS = 16
PING = "ping"
TEST_CONVERSATION = Conversation((Message("user", (Text(PING),)),), sampling=Sampling(max_tokens=OUTPUT_TOKENS))
NOUL = {"state": PING, "questions": {PING: {"type": "noul", "instructions": "Is it a ping?"}}}
NEEDS = Requirements(max_tokens=0, prompt_bytes=len(PING), messages=1)
TEST_REQUIREMENTS = Requirements(stream=True, max_tokens=0, prompt_bytes=len(PING), messages=1)
QUESTIONS: dict[str, Callable[[str], Request]] = {
    "chat": lambda model: ChatRequest(
        model, Requirements(max_tokens=OUTPUT_TOKENS, messages=1), lambda: TEST_CONVERSATION
    ),
    "embeddings": lambda model: EmbeddingsRequest(model, NEEDS, partial(EmbeddingsInput, (PING,))),
    "moderations": lambda model: ModerationRequest(model, NEEDS, lambda: {"input": PING}),
    "rerank": lambda model: RerankRequest(model, NEEDS, partial(RerankInput, PING, (PING,))),
    "decisions": lambda model: DecisionRequest(model, NEEDS, lambda: NOUL),
    "speech": lambda model: SpeechRequest(model, TEST_REQUIREMENTS, partial(SpeechInput, PING)),
    "images": lambda model: ImagesRequest(model, NEEDS, partial(ImagesInput, PING)),
}


class CheckResult(Struct, frozen=True):
    """The result of a test call of `model`: success, or the error and the provider's status (0: no response)."""

    ok: bool
    model: str
    latency_ms: int
    code: str = ""
    message: str = ""
    upstream_status: int = 0


class ProviderCheck:
    def __init__(
        self,
        catalogue: Callable[[], Catalogue],
        credentials: Credentials,
        provider_keys: ProviderKeys,
        custom_providers: CustomProviders,
        custom_models: CustomModels,
        upstreams: Upstreams,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._credentials = credentials
        self._provider_keys = provider_keys
        self._custom_providers = custom_providers
        self._custom_models = custom_models
        self._upstreams = upstreams
        self._clock = clock

    def check(self, organization_id: str, key_id: str, model: str = "") -> CheckResult:
        """Send a short request with this key. Raises NotFound (key) or InvalidRequest (no model to test with)."""
        key = self._provider_keys.find(organization_id, key_id)
        mapping, provider = self._choose(organization_id, key, model)
        info = key.info
        credential = Credential(key.secret, OWN_SOURCE, info.id, info.label, info.base_url)
        target = self._credentials.target(mapping, provider, credential)
        operation = next(name for name in QUESTIONS if name in mapping.operations)
        request = QUESTIONS[operation](mapping.model)
        started = self._clock.monotonic()
        try:
            self._ask(request, target, started + TIMEOUT_S)
        except GatewayError as error:
            return CheckResult(
                False, mapping.model, self._ms(started), error.code, error.message, error.upstream_status
            )
        return CheckResult(True, mapping.model, self._ms(started))

    def _ask(self, request: Request, target: Target, deadline: float) -> None:
        if not request.requirements.stream:
            self._upstreams.send(request, target, deadline)
            return
        answering = self._upstreams.stream(request, target, deadline)
        try:
            for batch in answering.batches:
                if type(batch[-1]) is Failed:
                    raise batch[-1].error
        finally:
            answering.close()

    def _choose(self, organization_id: str, key: StoredKey, model: str) -> tuple[Mapping, Provider]:
        provider_id = key.info.provider
        if provider_id == CUSTOM or provider_id.startswith(f"{CUSTOM}:"):
            return self._choose_custom(organization_id, provider_id, model)
        catalogue = self._catalogue()
        provider = catalogue.provider(provider_id)
        if provider is None:
            raise InvalidRequest(f"The catalogue has no provider {provider_id} any more.", param="provider")
        candidates = self._candidates(catalogue, key, model)
        if not candidates:
            raise InvalidRequest(
                f"{provider_id} has no {'model ' + model if model else 'model'} to test with.", param="model"
            )
        return min(candidates, key=lambda mapping: (_place_of(mapping), *self._price(mapping))), provider

    def _candidates(self, catalogue: Catalogue, key: StoredKey, model: str) -> list[Mapping]:
        """Return the mappings of the key's provider that can be tested: allowed, in service today, and of `model` if it
        is given."""
        day = day_of(self._clock.now_us())
        info = key.info
        requested = catalogue.find(model) if model else None
        if model and requested is None:
            return []
        models = [requested] if requested else list(catalogue.models.values())
        return [
            mapping
            for entry in models
            for mapping in entry.mappings
            if mapping.provider == info.provider
            and not QUESTIONS.keys().isdisjoint(mapping.operations)
            and ("chat" not in mapping.operations or "text" in entry.output_modalities)
            and not has_ended(mapping, day)
            and (not info.allowed_models or mapping.model in info.allowed_models)
            and (not info.region or not mapping.region or mapping.region == info.region)
        ]

    def _price(self, mapping: Mapping) -> tuple[bool, int, str]:
        """Return the sort key: cheapest first, mappings without a price last."""
        rates = rates_at(mapping, self._clock.now_us(), 0)
        return not mapping.priced, (rates.prompt or 0) + (rates.completion or 0), mapping.key

    def _choose_custom(self, organization_id: str, provider_id: str, model: str) -> tuple[Mapping, Provider]:
        name = provider_id.partition(":")[2] or CUSTOM
        info = self._custom_providers.providers_of(organization_id).get(name)
        known = info.models[0]["id"] if info and info.models else ""
        caller = Caller("", "user", "", organization_id, "", "", "", "owner", mode=API_KEYS)
        custom_model = self._custom_models.custom_model(caller, name, model or known)
        if custom_model is None:
            raise InvalidRequest(f"There is no custom provider {name} to test.", param="provider")
        return custom_model.mapping, custom_model.provider

    def _ms(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)


def _place_of(mapping: Mapping) -> int:
    """Return the index of the first question (in QUESTIONS) that the mapping supports."""
    return next(place for place, name in enumerate(QUESTIONS) if name in mapping.operations)
