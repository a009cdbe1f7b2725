"""The chat engine: the executor plus hashed prompt cache keys and repair of JSON answers."""

import hashlib
import hmac
from collections.abc import Generator

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.engine import json_healing, streaming, unary
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.further_models import with_choice
from gateway.engine.planning import RoutePlan
from gateway.engine.run import Run
from gateway.media.token_counting import counted
from gateway.neutral.chat import ChatRequest, ChatResult
from gateway.neutral.events import Batch
from gateway.runtime.threads import compute_if


class ChatEngine(Executor[ChatRequest]):
    """The executor of chat requests."""

    def __init__(self, parts: EngineParts, fingerprint_key: bytes) -> None:
        """`fingerprint_key` is a secret of the installation; cache keys are hashed with it before they are sent."""
        super().__init__(parts)
        self._fingerprint_key = fingerprint_key

    def _plan(self, context: RequestContext, request: ChatRequest) -> tuple[RoutePlan, ChatRequest]:
        """Plan as for every request, with the caller's cache key hashed and the response format prepared for JSON
        repair."""
        if context.choice:
            request = with_choice(context, request)
        options = request.options
        if request.requirements.media:
            request = counted(request)
        if options.prompt_cache_key:
            request = self._hash_cache_key(context, request)
        if options.heal and json_healing.requested_format(request) is not None:
            request = replace(request, native=None)
        route_plan, request = super()._plan(context, request)
        if request.requirements.json_object and route_plan.json_by_prompt and not request.options.heal:
            # Without a JSON mode models write text around the JSON, which the repair removes.
            request = replace(request, native=None, options=replace(request.options, heal=True))
        return route_plan, request

    def answer(self, run: Run) -> ChatResult:
        result = unary.answer(run)
        if run.request.options.heal:
            return json_healing.heal_result(run, result)
        return result

    def events(self, run: Run) -> Generator[Batch, None, None]:
        return json_healing.heal_stream(run, streaming.events(run))

    def _hash_cache_key(self, context: RequestContext, request: ChatRequest) -> ChatRequest:
        """Replace the caller's prompt cache key by a keyed hash, so that tenants never share a provider's cache by
        choosing the same key."""
        text = f"{context.caller.project_id}\n{request.options.prompt_cache_key}"
        hashed = compute_if(request.large, self._hash, text)
        return replace(request, options=replace(request.options, prompt_cache_key=hashed))

    def _hash(self, text: str) -> str:
        return hmac.new(self._fingerprint_key, text.encode(), hashlib.sha256).hexdigest()
