"""Answers that were made once and are given to several requests: kept ones, and those still on their way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.catalogue.prices import FREE
from gateway.clock import Clock
from gateway.engine.cache import Entry, Origin, ResponseCache
from gateway.engine.context import RequestContext
from gateway.engine.decisions import Decisions
from gateway.engine.flight import Flight, fly
from gateway.engine.outcome import Attempt, Outcome
from gateway.engine.planning import Planned
from gateway.engine.recording import read_batch, read_result, write_result
from gateway.engine.records import mode_of, record_of, terms_of
from gateway.engine.run import OK, Run
from gateway.engine.settlement import Settlements
from gateway.errors import GatewayError
from gateway.limits.rates import Slot
from gateway.metering.models import CACHED
from gateway.metering.recorder import write_row
from gateway.neutral.chat import ChatRequest, ChatResult
from gateway.neutral.events import Batch, Failed, Finished
from gateway.providers.protocol import Credential, Target
from gateway.routing.sieve import ACCESS
from gateway.threads import pause

HUNG_UP = "client_disconnect"
# Nobody waits longer between two pieces of a kept stream (HTTP reference, 6.5).
LONGEST_GAP_S = 1.0
POLL_S = 0.05
ELSEWHERE_S = 30.0
# How long a free answer waits for its row. It is given all the same.
ROW_S = 0.25


@dataclass(frozen=True, slots=True)
class Asking:
    """One request that may be answered by an answer made for another. `key` is the cache's, `deadline` monotonic."""

    context: RequestContext
    request: ChatRequest
    planned: Planned
    key: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Maker:
    """How an answer is made where there is none: `admit` begins the run, `whole` and `stream` carry it out."""

    admit: Callable[[], Run]
    whole: Callable[[Run], ChatResult]
    stream: Callable[[Run], Iterator[Batch]]


class Sharing:
    """The response cache and the flights of this worker."""

    def __init__(
        self,
        cache: ResponseCache,
        settlements: Settlements,
        decisions: Decisions,
        clock: Clock,
        heartbeat_s: float,
    ) -> None:
        self._cache = cache
        self._settlements = settlements
        self._decisions = decisions
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._flights: dict[str, Flight] = {}

    def generate(self, asking: Asking, maker: Maker) -> tuple[ChatResult, Outcome]:
        """A whole answer: kept, on its way for somebody else, or made now. Raises what making it raises."""
        entry = self._find(asking)
        flight = self._flights.get(asking.key)
        if entry is None and flight is not None:
            entry = self._follow(asking, flight) if self._may_follow(asking, flight) else None
            if entry is None:
                return self._alone(maker)
        if entry is not None:
            return self._replay(asking, entry)
        return self._lead(asking, maker)

    def stream(self, asking: Asking, maker: Maker) -> tuple[Iterator[Batch], Outcome]:
        """A streamed answer, likewise; a kept one comes in its own rhythm, one on its way as it comes."""
        entry = self._find(asking)
        if entry is not None:
            outcome = self._outcome(asking, self._target_of(asking, entry.origin.mapping), entry.origin.request)
            return self._replay_stream(asking, entry, outcome), outcome
        flight = self._flights.get(asking.key)
        if flight is None:
            return self._lead_stream(asking, maker)
        if self._may_follow(asking, flight) and not flight.overgrown:
            batches = flight.batches(self._heartbeat_s)
            flight.join()
            try:
                first = next(batches)
            except GatewayError:
                flight.leave()  # what failed for another may work for this one
            except BaseException:
                flight.leave()
                raise
            else:
                outcome = self._outcome(asking, asking.planned.groups[0][0], flight.request_id)
                following = self._follow_stream(asking, flight, first, batches, outcome)
                next(following)
                return following, outcome
        run = maker.admit()
        return maker.stream(run), run.outcome

    # Making an answer that others may join.

    def _alone(self, maker: Maker) -> tuple[ChatResult, Outcome]:
        run = maker.admit()
        try:
            return maker.whole(run), run.outcome
        finally:
            run.settlement.close()

    def _lead(self, asking: Asking, maker: Maker) -> tuple[ChatResult, Outcome]:
        flight = self._open(asking)
        try:
            entry = self._await_elsewhere(asking, flight)
            if entry is not None:
                flight.land(entry)
                self._close(asking.key, flight)
                return self._replay(asking, entry)
            run = maker.admit()
        except BaseException:
            self._close(asking.key, flight)
            raise
        flight.start(run.outcome, lambda one: self._make(asking, one, run, maker))
        try:
            flight.wait(None)
            return flight.result, run.outcome
        finally:
            flight.leave()

    def _lead_stream(self, asking: Asking, maker: Maker) -> tuple[Iterator[Batch], Outcome]:
        flight = self._open(asking)
        try:
            run = maker.admit()
        except BaseException:
            self._close(asking.key, flight)
            raise
        flight.start(run.outcome, lambda one: self._make_stream(asking, one, run, maker))
        batches = _reading(flight, flight.batches(self._heartbeat_s))
        next(batches)  # begun: who leaves before anything was read leaves the flight too
        return batches, run.outcome

    def _open(self, asking: Asking) -> Flight:
        mappings = frozenset(mapping.key for mapping in asking.planned.mappings)
        flight = self._flights[asking.key] = Flight(self._clock, asking.context.request_id, mappings)
        flight.join()
        return flight

    def _close(self, key: str, flight: Flight) -> None:
        if flight.locked:
            flight.locked = False
            self._cache.unlock(key)
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.ended:
            flight.fail()

    def _make(self, asking: Asking, flight: Flight, run: Run, maker: Maker) -> None:
        try:
            result = maker.whole(run)
            flight.result = result
            flight.land(_entry_of_result(flight, result))
            self._keep(asking, flight)
        except Exception as error:
            flight.fail(error)
        finally:
            run.settlement.close()
            self._close(asking.key, flight)

    def _make_stream(self, asking: Asking, flight: Flight, run: Run, maker: Maker) -> None:
        batches = maker.stream(run)
        try:
            fly(flight, batches, _entry_of)
            self._keep(asking, flight)
        except Exception as error:
            flight.fail(error)
        finally:
            batches.close()
            self._close(asking.key, flight)

    def _keep(self, asking: Asking, flight: Flight) -> None:
        if flight.landed and flight.entry is not None:
            self._cache.put(asking.key, flight.entry, asking.context.caller.cache_ttl_s)

    def _await_elsewhere(self, asking: Asking, flight: Flight) -> Entry | None:
        """The answer that another worker makes now; None when this one shall make it."""
        flight.locked = self._cache.lock(asking.key)
        if flight.locked:
            return None
        until = min(asking.deadline, self._clock.monotonic() + ELSEWHERE_S)
        while self._clock.monotonic() < until:
            pause(POLL_S)
            flight.locked = self._cache.lock(asking.key)
            entry = self._find(asking)
            if entry is not None or flight.locked:
                return entry
        return None

    # Giving an answer that was made for another.

    def _find(self, asking: Asking) -> Entry | None:
        entry = self._cache.get(asking.key)
        if entry is None or entry.origin.mapping in self._denied(asking):
            return None
        return entry if self._target_of(asking, entry.origin.mapping) is not None else None

    def _may_follow(self, asking: Asking, flight: Flight) -> bool:
        return not self._denied(asking) & flight.mappings

    def _denied(self, asking: Asking) -> set[str]:
        """What the caller's own rules keep from them: keys of one project may differ in that."""
        return {one.key for one in asking.planned.plan.excluded if one.stage == ACCESS}

    def _follow(self, asking: Asking, flight: Flight) -> Entry | None:
        """The answer of a flight, None when it failed."""
        flight.join()
        try:
            flight.wait(max(0.0, asking.deadline - self._clock.monotonic()))
        except GatewayError:
            return None
        finally:
            flight.leave()
        entry = flight.entry
        return entry if entry and self._target_of(asking, entry.origin.mapping) is not None else None

    def _replay(self, asking: Asking, entry: Entry) -> tuple[ChatResult, Outcome]:
        origin = entry.origin
        outcome = self._outcome(asking, self._target_of(asking, origin.mapping), origin.request)
        slot = self._enter(asking)
        outcome.standings = slot.standings
        slot.release()
        self._finish(asking, outcome, origin)
        result = read_result(entry.frames[0][1])
        outcome.warnings.extend(result.warnings)
        return result, outcome

    def _replay_stream(self, asking: Asking, entry: Entry, outcome: Outcome) -> Iterator[Batch]:
        slot, done = self._enter(asking), False
        try:
            for gap_ms, frame in entry.frames:
                pause(min(gap_ms / 1000, LONGEST_GAP_S))
                batch = read_batch(frame)
                if type(batch[-1]) is Finished:
                    done = True
                    self._finish(asking, outcome, entry.origin)
                yield batch
        finally:
            slot.release()
            if not done:
                self._finish(asking, outcome, entry.origin, HUNG_UP)

    def _follow_stream(
        self, asking: Asking, flight: Flight, batch: Batch, batches: Iterator[Batch], outcome: Outcome
    ) -> Iterator[Batch]:
        slot, done = None, False
        try:
            slot = self._enter(asking)
            yield []
            while True:
                _name_target(outcome, flight)
                last = type(batch[-1])
                if last is Finished:
                    done = True
                    self._finish(asking, outcome, _origin_of(flight))
                elif last is Failed:
                    done = True
                    self._finish(asking, outcome, None, "error")
                yield batch
                if done:
                    return
                batch = next(batches)
        finally:
            batches.close()
            flight.leave()
            if slot is not None:
                slot.release()
                if not done:
                    self._finish(asking, outcome, None, HUNG_UP)

    def _enter(self, asking: Asking) -> Slot:
        """Rate limits count what costs nothing too. RateLimited."""
        caller, request = asking.context.caller, asking.request
        return self._settlements.rates.enter(
            caller.organization_id, caller.project_id, caller.key_id, request.asked, request.needs.prompt_bytes
        )

    def _outcome(self, asking: Asking, target: Target, origin: str) -> Outcome:
        attempt = Attempt(0, target, self._clock.now_us(), self._clock.monotonic(), charge=FREE)
        attempt.first_at = attempt.started
        if asking.context.payload is not None:
            asking.context.payload.forget()
        requested = asking.planned.plan.resolution.provider or None
        return Outcome(asking.request, requested, attempts=[attempt], cached=True, origin=origin)

    def _finish(self, asking: Asking, outcome: Outcome, origin: Origin | None, finish: str = "") -> None:
        """The end of a free answer: its facts, and a row of usage at no cost. Never raises."""
        attempt = outcome.serving
        attempt.ended, attempt.status = self._clock.monotonic(), OK
        attempt.finish = finish or (origin.finish if origin else "")
        if origin is not None:
            attempt.usage, attempt.service_tier = origin.usage, origin.service_tier
            attempt.model, attempt.upstream_id = origin.model, origin.upstream_id
        context, needs = asking.context, asking.request.needs
        terms = terms_of(context, needs.prompt_bytes, asking.request.asked, needs.stream)
        record = record_of(terms, attempt, mode_of(attempt.target), self._clock.now_us())
        self._decisions.keep(terms.request, terms.account.project, asking.planned.plan)
        try:
            row = write_row(record._replace(flags=record.flags | CACHED))
            ticket = self._settlements.journal.append(row)
            if finish != HUNG_UP:
                ticket.wait(ROW_S)
        except GatewayError:
            return  # it costs nothing, so the answer does not depend on its row

    def _target_of(self, asking: Asking, mapping_key: str) -> Target | None:
        """What served the answer, as this caller's plan knows it; None when the catalogue has it no more."""
        plan = asking.planned.plan
        for candidate in (one.candidate for group in (plan.ranked, plan.excluded) for one in group):
            if candidate.key == mapping_key:
                return Target(candidate.provider, candidate.mapping, Credential(""), "")
        return None


def _reading(flight: Flight, batches: Iterator[Batch]) -> Iterator[Batch]:
    try:
        yield []
        yield from batches
    finally:
        batches.close()
        flight.leave()


def _name_target(outcome: Outcome, flight: Flight) -> None:
    """The one that serves the flight now is who serves its followers."""
    if flight.outcome is not None and flight.outcome.attempts:
        outcome.serving.target = flight.outcome.serving.target


def _origin_of(flight: Flight) -> Origin:
    serving = flight.outcome.serving
    return Origin(
        request=flight.request_id,
        mapping=serving.target.mapping.key,
        usage=serving.usage,
        finish=serving.finish,
        service_tier=serving.service_tier,
        model=serving.model,
        upstream_id=serving.upstream_id,
    )


def _entry_of(flight: Flight) -> Entry:
    frames = [(gap_ms, frame) for gap_ms, frame in flight.frames if isinstance(frame, bytes)]
    return Entry(_origin_of(flight), frames)


def _entry_of_result(flight: Flight, result: ChatResult) -> Entry | None:
    try:
        return Entry(_origin_of(flight), [(0, write_result(result))])
    except TypeError:
        return None  # what has no bytes cannot be given twice
