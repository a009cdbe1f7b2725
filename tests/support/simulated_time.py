"""Pauses between the turns of agents by a simulated clock, which routes and cache markers of a gateway follow."""

from typing import Any

from gateway.billing.context import RequestContext
from gateway.clock import Clock
from gateway.neutral.chat import ChatRequest
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.worker.services import Services


def simulate_pauses(services: Services, clock: Clock) -> None:
    """Let a gateway of this process measure the pauses of sessions by a clock."""
    routes: Any = services.engine.chat.routes
    lifetimes = CacheLifetimes(clock, None, b"simulated")
    services.routing.planner.cache_lifetimes = routes._lifetimes = lifetimes
    apply = routes.apply

    def apply_then(context: RequestContext, request: ChatRequest, remember: bool = True) -> ChatRequest | None:
        at_us, context.at_us = context.at_us, clock.now_us()
        try:
            applied: ChatRequest | None = apply(context, request, remember)
            return applied
        finally:
            context.at_us = at_us

    routes.apply = apply_then
