"""Opens realtime sessions: checks who may open one, and connects to a provider."""

from collections.abc import Callable
from typing import NamedTuple

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import CurrentCatalogue
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.planning import RoutePlan
from gateway.engine.realtime.books import OK, Report, SessionPlace, TurnParts, no_content
from gateway.engine.realtime.session import CallerEvents, RealtimeSession, SessionLimits, SessionWatch
from gateway.engine.realtime.session_guard import SessionGuard
from gateway.engine.realtime.session_turns import SessionTurns
from gateway.engine.run import Run
from gateway.errors import Forbidden, GatewayError, NotSupported, RateLimited, Unavailable
from gateway.money import NANO
from gateway.neutral.realtime import OVERHEAD_TOKENS, TRANSCRIPTION, RealtimeInput, RealtimeRequest, request_of
from gateway.neutral.request import Requirements
from gateway.neutral.transcriptions import TranscriptionRequest
from gateway.providers.protocol import Target
from gateway.providers.upstream_calls import UpstreamSession
from gateway.routing.resolve import SANDBOX
from gateway.store.documents import Documents
from gateway.store.shared_slots import HeldSlots, SessionsFull, SessionSlots, give

HANDSHAKE_TIMEOUT_S = 30.0
DISABLED = "Realtime sessions are disabled; the operator can enable them with REALTIME_INLINE."
TOO_MANY_SESSIONS = "sessions are already open; close one, or wait until one ends."


class OpenedSession(NamedTuple):
    """A session that is open upstream: its turns, and where it is served."""

    upstream: UpstreamSession
    turns: SessionTurns
    place: SessionPlace
    slots: tuple[HeldSlots, ...]


class RealtimeEngine(Executor[RealtimeRequest]):
    """Opens the sessions of a worker; `running` are the current ones. `leaving`: the worker shuts down, and a session
    ends after its current response."""

    def __init__(self, parts: EngineParts, documents: Documents, catalogue: CurrentCatalogue) -> None:
        super().__init__(parts)
        self._settings = parts.settings.realtime
        self._catalogue = catalogue
        self.leaving = False
        self.running: set[object] = set()
        limits = self._settings
        self._slots = SessionSlots(
            documents, parts.clock, "realtime", organization=limits.organization_sessions, key=limits.key_sessions
        )
        self._turn_parts = TurnParts(
            parts.settlements,
            parts.planner,
            parts.decisions,
            parts.clock,
            round(limits.session_usd * NANO),
            self._default_output,
            parts.settings.timeouts.request_s,
        )

    def check_on(self) -> None:
        """Unavailable (realtime_disabled) when the operator disabled sessions."""
        if not self._settings.inline:
            raise Unavailable(DISABLED, code="realtime_disabled", retry_after=None)

    def find(self, context: RequestContext, model: str) -> Target:
        """Return the first target for a session of `model`. Errors of the planner."""
        return self._plan_session(context, model, RealtimeInput())[0].groups[0][0]

    def transcribes(self, target: Target) -> bool:
        """Return whether the session's model transcribes speech itself and no other model can."""
        return self._upstreams.transcribes(target)

    def find_transcriber(self, context: RequestContext, model: str, beside: Target | None) -> SessionPlace:
        """Return where `model` transcribes speech: at the provider of the session with its key (`beside`), else at any
        provider with sessions. NotSupported (transcription_model_not_supported), Forbidden
        (transcription_model_not_allowed)."""
        plan_context = self._plan_context(context, context.caller, TranscriptionRequest.operation)
        try:
            route_plan = self._planner.plan(plan_context, _transcription_request(model))
        except Forbidden as error:
            raise Forbidden(error.message, param="session", code="transcription_model_not_allowed") from None
        except GatewayError as error:
            if error.status >= 500:
                raise
            raise _no_transcription(error.message) from None
        for group in route_plan.groups:
            for target in group:
                if self._may_transcribe(target, beside):
                    return SessionPlace(target, route_plan.plan, model)
        raise _no_transcription(f"{model} does not transcribe within realtime sessions of this model's provider.")

    def is_name_of(self, name: str, place: str) -> bool:
        """Return whether a caller's `name` of a model means `place` ("provider/model")."""
        provider, _, ident = place.partition("/")
        named_provider, _, rest = name.rpartition("/")
        known = self._catalogue.current().find(rest)
        return known is not None and known.id == ident and named_provider in ("", provider)

    def open(self, context: RequestContext, model: str, opened: RealtimeInput, report: Report) -> OpenedSession:
        """Open a session.

        It is admitted as if its first response came now, with failover until a provider accepts it; then its
        reservation is released. A session for transcripts alone needs no `model`, since the transcription model may be
        named later. Errors as of every request; RateLimited (too_many_sessions).
        """
        self.check_on()
        if self.leaving:
            raise Unavailable("The server is restarting; connect again.")
        slots = self._take_slots(context.caller)
        try:
            route_plan, request = self._plan_session(context, model, opened)
            upstream, target = self._connect(context, request, route_plan)
        except BaseException:
            give(slots)
            raise
        place = SessionPlace(target, route_plan.plan, request.requested_model)
        turns = SessionTurns(self._turn_parts, context, place, report, self._has_transcriber)
        return OpenedSession(upstream, turns, place, slots)

    def session(self, opened: OpenedSession, events: CallerEvents, caller: Callable[[], Caller]) -> RealtimeSession:
        """Return the session that serves an open one. `caller` looks its caller up again."""
        context = opened.turns.books.context
        place = opened.place
        settings = opened.turns.settings

        def permits(current: Caller) -> None:
            plan_context = self._plan_context(context, current, context.operation)
            request = context.request or request_of(place.requested_model, RealtimeInput(), 0, 0)
            self._planner.plan(plan_context, request)
            if settings.expected_transcriber is not None:
                self.find_transcriber(plan_context, settings.expected_transcriber.requested_model, place.target)

        limits = SessionLimits(self._settings.session_s, self._settings.idle_s)
        watch = SessionWatch(caller, permits, self._is_leaving, opened.slots, self.running, limits, self._clock)
        guard = SessionGuard(self._guarding, context, place)
        return RealtimeSession(opened.upstream, opened.turns, events, watch, guard)

    def _is_leaving(self) -> bool:
        return self.leaving

    def _plan_context(self, context: RequestContext, caller: Caller, operation: str) -> RequestContext:
        """Return the context for planning within an open session; nothing is sent with it."""
        now = self._clock.monotonic()
        ident = context.request_id
        return RequestContext(ident, caller, self._clock.now_us(), now, now, ip=context.ip, operation=operation)

    def _plan_session(
        self, context: RequestContext, model: str, opened: RealtimeInput
    ) -> tuple[RoutePlan, RealtimeRequest]:
        request = request_of(model, opened, OVERHEAD_TOKENS, self._default_output)
        try:
            if model or opened.type != TRANSCRIPTION:
                return self._plan(context, request)
        except NotSupported:
            if opened.type != TRANSCRIPTION:
                raise
        # A session for transcripts alone may name the transcription model, or none yet.
        context.operation = TranscriptionRequest.operation
        refused: GatewayError | None = None
        for name in (model,) if model else self._transcribers():
            try:
                route_plan = self._plan_transcripts(context, name)
            except GatewayError as error:
                refused = refused or error
                continue
            return route_plan, request_of(name, opened, OVERHEAD_TOKENS, self._default_output)
        raise refused or _no_transcription("No model transcribes within realtime sessions.")

    def _plan_transcripts(self, context: RequestContext, model: str) -> RoutePlan:
        route_plan = self._planner.plan(context, _transcription_request(model))
        groups = tuple(group for group in route_plan.groups if self._may_transcribe(group[0], None))
        if not groups:
            raise _no_transcription(f"No provider of {model} has realtime sessions.")
        return RoutePlan(route_plan.plan, groups)

    def _transcribers(self) -> list[str]:
        """Return the models that may transcribe within sessions, those of the sandbox last."""
        providers = self._providers_with_sessions()
        mappings = [
            mapping
            for model in self._catalogue.current().models.values()
            for mapping in model.mappings
            if TranscriptionRequest.operation in mapping.operations and mapping.provider in providers
        ]
        others = [mapping.key for mapping in mappings if mapping.provider != SANDBOX]
        return others + [mapping.key for mapping in mappings if mapping.provider == SANDBOX]

    def _connect(
        self, context: RequestContext, request: RealtimeRequest, route_plan: RoutePlan
    ) -> tuple[UpstreamSession, Target]:
        deadline = self._clock.monotonic() + HANDSHAKE_TIMEOUT_S
        run = self._admit(context, request, route_plan, deadline)
        try:
            return self._walk(run, request, deadline)
        finally:
            run.settlement.close()

    def _walk(self, run: Run, request: RealtimeRequest, deadline: float) -> tuple[UpstreamSession, Target]:
        target = run.walk.first()
        while True:
            attempt = run.begin(target)
            try:
                upstream = self._upstreams.connect(request, attempt.target, deadline)
            except GatewayError as error:
                target = run.failed(attempt, error)
                continue
            finally:
                attempt.ended = self._clock.monotonic()
            attempt.status = OK
            attempt.finish = "stop"
            run.settlement.unused(attempt)
            if run.route_plan.remembered:
                run.planner.served(run.route_plan, attempt)
            return upstream, attempt.target

    def _take_slots(self, caller: Caller) -> tuple[HeldSlots, ...]:
        """Take one of the simultaneous sessions of the organization and of the key."""
        try:
            return self._slots.take(caller.organization_id, caller.key_id)
        except SessionsFull as full:
            raise RateLimited(f"{full} {TOO_MANY_SESSIONS}", code="too_many_sessions", retry_after=5.0) from None

    def _has_transcriber(self, context: RequestContext, model: str, place: SessionPlace) -> SessionPlace:
        return self.find_transcriber(context, model, place.target)

    def _may_transcribe(self, target: Target, beside: Target | None) -> bool:
        if beside is not None:
            return target.provider.id == beside.provider.id and target.credential == beside.credential
        return target.provider.id in self._providers_with_sessions()

    def _providers_with_sessions(self) -> frozenset[str]:
        return self._catalogue.remember("providers of realtime sessions", self._find_providers)

    def _find_providers(self) -> frozenset[str]:
        return frozenset(
            mapping.provider
            for model in self._catalogue.current().models.values()
            for mapping in model.mappings
            if RealtimeRequest.operation in mapping.operations
        )


def _transcription_request(model: str) -> TranscriptionRequest:
    return TranscriptionRequest(model, Requirements(stream=True, max_tokens=0, messages=1), no_content)


def _no_transcription(message: str) -> NotSupported:
    return NotSupported(message, param="session.audio.input.transcription", code="transcription_model_not_supported")
