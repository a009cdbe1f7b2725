"""The chat engine of one background response: targets with a background mode make it there, and a worker that continues
a response of another one reads it where it is."""

from collections.abc import Callable
from copy import copy

from msgspec.structs import replace

from gateway.billing.context import Attempt, RequestContext
from gateway.billing.response_reservation import BackgroundMaking
from gateway.callers.access import logs_text
from gateway.catalogue.entries import Mapping
from gateway.engine.chat_engine import ChatEngine
from gateway.engine.planning import Planner, RoutePlan
from gateway.engine.run import Run
from gateway.neutral.chat import NO_OPTIONS
from gateway.neutral.request import Request
from gateway.neutral.usage import Usage
from gateway.providers.background_calls import BackgroundCalls
from gateway.providers.protocol import Target


def unknown() -> Usage | None:
    """Return None, for what nobody knows."""
    return None


class BackgroundRun(Run):
    """A background response in progress. One that is cancelled is cancelled at its provider, which says what it used,
    and not read on."""

    cancel: Callable[[], Usage | None] = unknown

    def begin(self, target: Target) -> Attempt:
        """Begin an attempt, whose intent any worker can read."""
        attempt = super().begin(target)
        self.settlement.keep_intent(attempt.number)
        return attempt

    def leave(self, attempt: Attempt) -> bool:
        """Return False: the answer is not read on."""
        return False

    def hung_up(self, attempt: Attempt) -> None:
        """Cancel the response, and settle it with what its provider counted."""
        usage = self.cancel()
        if usage is not None:
            attempt.usage = replace(usage, basis="drained")
        super().hung_up(attempt)


class BackgroundPlanner(Planner):
    """Plans a response that a provider makes already: for its target, whatever rules and health say now. It shares all
    parts of `planner`."""

    def __init__(self, planner: Planner, target: Target) -> None:
        vars(self).update(vars(planner))
        self._target = target

    def plan(self, context: RequestContext, request: Request) -> RoutePlan:
        """Return the plan of the target."""
        target = self._target
        key = target.mapping.key

        def usable(other: Mapping) -> tuple[Target, ...]:
            return (target.credential,) if other.key == key else ()  # type: ignore[return-value]

        caller = context.caller
        plan = self._router.plan(
            target.mapping.model,
            request.requirements,
            NO_OPTIONS,
            None,
            usable,  # type: ignore[arg-type]
            True,
            scope=caller.project_id,
            operation=context.operation,
            explore=0.0,
            organization=caller.organization_id,
        )
        order = tuple(scored for scored in plan.order if scored.key == key)
        route_plan = RoutePlan(plan._replace(order=order), ((target,),))
        route_plan.remembered = False
        return route_plan


class BackgroundChatEngine(ChatEngine):
    """The chat engine of one background response. It shares all parts of `chat`."""

    def __init__(self, chat: ChatEngine, calls: BackgroundCalls, making: BackgroundMaking) -> None:
        vars(self).update(vars(chat))
        self._calls = calls
        self._making = making
        if making.continued is not None:
            self._planner = BackgroundPlanner(self._planner, making.continued.target)

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        """Admit the request. Where a target has a background mode that the caller's policy allows, with a hold."""
        making = self._making
        targets = [target for group in route_plan.groups for target in group]
        if not logs_text(context.caller.rules) or not any(self._calls.api_of(target) for target in targets):
            return super()._admit(context, request, route_plan, deadline)
        making.native(context)
        context.job = making.hold
        route_plan = copy(route_plan)
        route_plan.groups = tuple(
            tuple(
                self._calls.through(self._upstreams, target, request.operation, making.terms)
                if self._calls.api_of(target)
                else target
                for target in group
            )
            for group in route_plan.groups
        )
        run = super()._admit(context, request, route_plan, deadline)
        if making.continued is not None:
            # The rows of earlier attempts have these numbers.
            target = making.continued.target
            run.outcome.attempts = [Attempt(number, target, 0, 0.0) for number in range(making.continued.attempt)]
        made = BackgroundRun(*(getattr(run, name) for name in run.__struct_fields__))
        made.cancel = making.cancel
        return made
