"""Request coalescing: one answer for several equal requests, from the cache or while it is being made."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt, Outcome
from gateway.billing.settlement import Settlements
from gateway.billing.usage_rows import mode_of, record_of, terms_of
from gateway.catalogue.prices import FREE
from gateway.clock import Clock
from gateway.engine.cache import AnswerOrigin, CachedAnswer, ResponseCache
from gateway.engine.codec import read_batch, read_result, write_result
from gateway.engine.decisions import Decisions
from gateway.engine.planning import RoutePlan
from gateway.engine.run import OK, Run
from gateway.engine.shared_call import SharedCall, fill
from gateway.errors import GatewayError, Internal
from gateway.limits.rates import Slot
from gateway.metering.models import CACHED
from gateway.metering.usage_table import write_row
from gateway.neutral.events import Batch, Failed, Finished
from gateway.neutral.request import Request, Result
from gateway.providers.protocol import Credential, Target
from gateway.routing.candidate_filter import ACCESS
from gateway.threads import pause

HUNG_UP = "client_disconnect"
# Nobody waits longer between two pieces of a kept stream (HTTP reference, 6.5).
LONGEST_GAP_S = 1.0
POLL_S = 0.05
ELSEWHERE_S = 30.0
# How long a free answer waits for its row. It is given all the same.
ROW_S = 0.25
Batches = Generator[Batch, None, None]


@dataclass(frozen=True, slots=True)
class SharedRequest:
    """One request that may be answered by an answer made for another. `key` is the cache's, `deadline` monotonic."""

    context: RequestContext
    request: Request
    route_plan: RoutePlan
    key: str
    deadline: float


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """How an answer is made where there is none: `admit` begins the run, `whole` and `stream` carry it out."""

    admit: Callable[[], Run]
    unary: Callable[[Run], Result]
    stream: Callable[[Run], Batches]


class RequestCoalescing:
    """The response cache and the shared calls of this worker."""

    def __init__(
        self,
        cache: ResponseCache,
        settlements: Settlements,
        decisions: Decisions,
        clock: Clock,
        heartbeat_s: float,
    ) -> None:
        self.cache = cache
        self._settlements = settlements
        self._decisions = decisions
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._shared_calls: dict[str, SharedCall] = {}

    def generate(self, shared: SharedRequest, source: AnswerSource) -> tuple[Result, Outcome]:
        """A whole answer: kept, on its way for somebody else, or made now. Raises what making it raises."""
        entry = self._find(shared)
        shared_call = self._shared_calls.get(shared.key)
        if entry is None and shared_call is not None:
            entry = self._follow(shared, shared_call) if self._may_follow(shared, shared_call) else None
            if entry is None:
                return self._alone(source)
        if entry is not None:
            return self._replay(shared, entry)
        return self._lead(shared, source)

    def stream(self, shared: SharedRequest, source: AnswerSource) -> tuple[Batches, Outcome]:
        """A streamed answer, likewise; a kept one comes in its own rhythm, one on its way as it comes."""
        entry = self._find(shared)
        if entry is not None:
            outcome = self._outcome(shared, self._server_of(shared, entry.origin), entry.origin.request)
            return self._replay_stream(shared, entry, outcome), outcome
        shared_call = self._shared_calls.get(shared.key)
        if shared_call is None:
            return self._lead_stream(shared, source)
        if self._may_follow(shared, shared_call) and not shared_call.overgrown:
            batches = shared_call.batches(self._heartbeat_s)
            shared_call.join()
            try:
                first = next(batches)
            except GatewayError:
                shared_call.leave()  # what failed for another may work for this one
            except BaseException:
                shared_call.leave()
                raise
            else:
                outcome = self._outcome(shared, shared.route_plan.groups[0][0], shared_call.request_id)
                following = self._follow_stream(shared, shared_call, first, batches, outcome)
                next(following)
                return following, outcome
        run = source.admit()
        return source.stream(run), run.outcome

    # Making an answer that others may join.

    def _alone(self, source: AnswerSource) -> tuple[Result, Outcome]:
        run = source.admit()
        try:
            return source.unary(run), run.outcome
        finally:
            run.settlement.close()

    def _lead(self, shared: SharedRequest, source: AnswerSource) -> tuple[Result, Outcome]:
        shared_call = self._open(shared)
        try:
            entry = self._await_elsewhere(shared, shared_call)
            if entry is not None:
                shared_call.complete(entry)
                self._close(shared.key, shared_call)
                return self._replay(shared, entry)
            run = source.admit()
        except BaseException:
            self._close(shared.key, shared_call)
            raise
        shared_call.start(run.outcome, lambda one: self._make(shared, one, run, source))
        try:
            shared_call.wait(None)
            result = shared_call.result
            if result is None:
                raise Internal("The answer was not kept for who asked for it.")
            return result, run.outcome
        finally:
            shared_call.leave()

    def _lead_stream(self, shared: SharedRequest, source: AnswerSource) -> tuple[Batches, Outcome]:
        shared_call = self._open(shared)
        try:
            run = source.admit()
        except BaseException:
            self._close(shared.key, shared_call)
            raise
        shared_call.start(run.outcome, lambda one: self._make_stream(shared, one, run, source))
        batches = _reading(shared_call, shared_call.batches(self._heartbeat_s))
        next(batches)  # begun: who leaves before anything was read leaves the shared call too
        return batches, run.outcome

    def _open(self, shared: SharedRequest) -> SharedCall:
        mappings = frozenset(mapping.key for mapping in shared.route_plan.mappings)
        shared_call = self._shared_calls[shared.key] = SharedCall(self._clock, shared.context.request_id, mappings)
        shared_call.join()
        return shared_call

    def _close(self, key: str, shared_call: SharedCall) -> None:
        if shared_call.locked:
            shared_call.locked = False
            self.cache.unlock(key)
        if self._shared_calls.get(key) is shared_call:
            del self._shared_calls[key]
        if not shared_call.ended:
            shared_call.fail()

    def _make(self, shared: SharedRequest, shared_call: SharedCall, run: Run, source: AnswerSource) -> None:
        try:
            result = source.unary(run)
            shared_call.result = result
            shared_call.complete(_entry_of_result(shared_call, result))
            self._keep(shared, shared_call)
        except Exception as error:
            shared_call.fail(error)
        finally:
            run.settlement.close()
            self._close(shared.key, shared_call)

    def _make_stream(self, shared: SharedRequest, shared_call: SharedCall, run: Run, source: AnswerSource) -> None:
        batches = source.stream(run)
        try:
            fill(shared_call, batches, _entry_of)
            self._keep(shared, shared_call)
        except Exception as error:
            shared_call.fail(error)
        finally:
            batches.close()
            self._close(shared.key, shared_call)

    def _keep(self, shared: SharedRequest, shared_call: SharedCall) -> None:
        if shared_call.landed and shared_call.entry is not None:
            self.cache.put(shared.key, shared_call.entry, shared.context.caller.cache_ttl_s)

    def _await_elsewhere(self, shared: SharedRequest, shared_call: SharedCall) -> CachedAnswer | None:
        """The answer that another worker makes now; None when this one shall make it."""
        shared_call.locked = self.cache.lock(shared.key)
        if shared_call.locked:
            return None
        until = min(shared.deadline, self._clock.monotonic() + ELSEWHERE_S)
        while self._clock.monotonic() < until:
            pause(POLL_S)
            shared_call.locked = self.cache.lock(shared.key)
            entry = self._find(shared)
            if entry is not None or shared_call.locked:
                return entry
        return None

    # Giving an answer that was made for another.

    def _find(self, shared: SharedRequest) -> CachedAnswer | None:
        entry = self.cache.get(shared.key)
        if entry is None or entry.origin.mapping in self._denied(shared):
            return None
        return entry if self._target_of(shared, entry.origin.mapping) is not None else None

    def _may_follow(self, shared: SharedRequest, shared_call: SharedCall) -> bool:
        return not self._denied(shared) & shared_call.mappings

    def _denied(self, shared: SharedRequest) -> set[str]:
        """What the caller's own rules keep from them: keys of one project may differ in that."""
        return {one.key for one in shared.route_plan.plan.excluded if one.stage == ACCESS}

    def _follow(self, shared: SharedRequest, shared_call: SharedCall) -> CachedAnswer | None:
        """The answer of a shared call, None when it failed."""
        shared_call.join()
        try:
            shared_call.wait(max(0.0, shared.deadline - self._clock.monotonic()))
        except GatewayError:
            return None
        finally:
            shared_call.leave()
        entry = shared_call.entry
        return entry if entry and self._target_of(shared, entry.origin.mapping) is not None else None

    def _replay(self, shared: SharedRequest, entry: CachedAnswer) -> tuple[Result, Outcome]:
        origin = entry.origin
        outcome = self._outcome(shared, self._server_of(shared, origin), origin.request)
        slot = self._enter(shared)
        outcome.rate_limits = slot.statuses
        slot.release()
        self._finish(shared, outcome, origin)
        result = read_result(entry.frames[0][1])
        outcome.warnings.extend(result.warnings)
        return result, outcome

    def _replay_stream(self, shared: SharedRequest, entry: CachedAnswer, outcome: Outcome) -> Batches:
        slot, done = self._enter(shared), False
        try:
            for gap_ms, frame in entry.frames:
                pause(min(gap_ms / 1000, LONGEST_GAP_S))
                batch = read_batch(frame)
                if type(batch[-1]) is Finished:
                    done = True
                    self._finish(shared, outcome, entry.origin)
                yield batch
        finally:
            slot.release()
            if not done:
                self._finish(shared, outcome, entry.origin, HUNG_UP)

    def _follow_stream(
        self, shared: SharedRequest, shared_call: SharedCall, batch: Batch, batches: Batches, outcome: Outcome
    ) -> Batches:
        slot, done = None, False
        try:
            slot = self._enter(shared)
            yield []
            while True:
                _name_target(outcome, shared_call)
                last = type(batch[-1])
                if last is Finished:
                    done = True
                    self._finish(shared, outcome, _origin_of(shared_call))
                elif last is Failed:
                    done = True
                    self._finish(shared, outcome, None, "error")
                yield batch
                if done:
                    return
                batch = next(batches)
        finally:
            batches.close()
            shared_call.leave()
            if slot is not None:
                slot.release()
                if not done:
                    self._finish(shared, outcome, None, HUNG_UP)

    def _enter(self, shared: SharedRequest) -> Slot:
        """Rate limits count what costs nothing too. RateLimited."""
        caller, request = shared.context.caller, shared.request
        return self._settlements.rates.enter(
            caller.organization_id,
            caller.project_id,
            caller.key_id,
            request.requested_model,
            request.requirements.prompt_bytes,
            request.operation,
        )

    def _outcome(self, shared: SharedRequest, target: Target, origin: str) -> Outcome:
        attempt = Attempt(0, target, self._clock.now_us(), self._clock.monotonic(), charge=FREE)
        attempt.first_at = attempt.started
        if shared.context.payload is not None:
            shared.context.payload.forget()
        requested = shared.route_plan.plan.resolution.provider or None
        outcome = shared.context.outcome = Outcome(
            shared.request, requested, attempts=[attempt], cached=True, origin=origin
        )
        return outcome

    def _finish(self, shared: SharedRequest, outcome: Outcome, origin: AnswerOrigin | None, finish: str = "") -> None:
        """The end of a free answer: its facts, and a row of usage at no cost. Never raises."""
        attempt = outcome.serving
        attempt.ended, attempt.status = self._clock.monotonic(), OK
        attempt.finish = finish or (origin.finish if origin else "")
        if origin is not None:
            attempt.usage, attempt.service_tier = origin.usage, origin.service_tier
            attempt.model, attempt.upstream_id = origin.model, origin.upstream_id
        context, needs = shared.context, shared.request.requirements
        terms = terms_of(context, needs.prompt_bytes, shared.request.requested_model, needs.stream)
        record = record_of(terms, attempt, mode_of(attempt.target), self._clock.now_us())
        self._decisions.keep(terms.request, terms.billing_identity.project, shared.route_plan.plan)
        try:
            row = write_row(record._replace(flags=record.flags | CACHED))
            ticket = self._settlements.journal.append(row)
            if finish != HUNG_UP:
                ticket.wait(ROW_S)
        except GatewayError:
            return  # it costs nothing, so the answer does not depend on its row

    def _server_of(self, shared: SharedRequest, origin: AnswerOrigin) -> Target:
        """As `_target_of`, of an answer that was found to have one."""
        target = self._target_of(shared, origin.mapping)
        if target is None:
            raise Internal("Who served this answer is not known any more.")
        return target

    def _target_of(self, shared: SharedRequest, mapping_key: str) -> Target | None:
        """What served the answer, as this caller's plan knows it; None when the catalogue has it no more."""
        plan = shared.route_plan.plan
        for candidate in (one.candidate for group in (plan.ranked, plan.excluded) for one in group):
            if candidate.key == mapping_key:
                return Target(candidate.provider, candidate.mapping, Credential(""), "")
        return None


def _reading(shared_call: SharedCall, batches: Batches) -> Batches:
    try:
        yield []
        yield from batches
    finally:
        batches.close()
        shared_call.leave()


def _name_target(outcome: Outcome, shared_call: SharedCall) -> None:
    """The one that serves the shared call now is who serves its followers."""
    if shared_call.outcome is not None and shared_call.outcome.attempts:
        outcome.serving.target = shared_call.outcome.serving.target


def _origin_of(shared_call: SharedCall) -> AnswerOrigin:
    if shared_call.outcome is None:
        raise Internal("The answer has no origin yet.")
    serving = shared_call.outcome.serving
    return AnswerOrigin(
        request=shared_call.request_id,
        mapping=serving.target.mapping.key,
        usage=serving.usage,
        finish=serving.finish,
        service_tier=serving.service_tier,
        model=serving.model,
        upstream_id=serving.upstream_id,
    )


def _entry_of(shared_call: SharedCall) -> CachedAnswer:
    frames = [(gap_ms, frame) for gap_ms, frame in shared_call.frames if isinstance(frame, bytes)]
    return CachedAnswer(_origin_of(shared_call), frames)


def _entry_of_result(shared_call: SharedCall, result: Result) -> CachedAnswer | None:
    try:
        return CachedAnswer(_origin_of(shared_call), [(0, write_result(result))])
    except TypeError:
        return None  # what has no bytes cannot be given twice
