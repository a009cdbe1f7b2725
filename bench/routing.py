"""The cost of a routing decision: CPU time of planning one request among ten providers, and of keeping the decision.

python -m bench.routing            a table; ends with status 1 above the budget of 15 µs
"""

import sys
import time
from collections.abc import Callable

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.clock import Clock
from gateway.configuration.settings import RoutingSettings
from gateway.neutral.chat import Options, Requirements
from gateway.providers.protocol import Credential
from gateway.routing.plan import Router
from gateway.routing.provider_health import Health
from gateway.routing.record import pack
from gateway.routing.sticky import Sticky

CANDIDATES, ROUNDS, CALLS = 10, 15, 2000
BUDGET_US = 15.0
PLAIN, SESSION = "a stream, nothing pinned", "a stream within a session"
TOOLS, KEEP = "a forced tool and an effort", "the decision packed to be kept"


def build_router(candidates: int = CANDIDATES) -> tuple[Router, Callable[[Mapping], tuple[Credential, ...]]]:
    """A router over one model at so many providers, each with a key and an hour of outcomes."""
    clock = Clock()
    health = Health(clock)
    keys, mappings = {}, []
    for number in range(candidates):
        name = f"provider-{number}"
        rates = TokenRates(prompt=10**9 + number * 10**7, completion=2 * 10**9)
        able = {"tools": True, "vision": True, "reasoning": True, "context_length": 128_000, "max_output": 16_384}
        mappings.append(Mapping(name, "m", "m", prices=(Prices(rates),), **able))
        keys[name] = (Credential("secret", ident=f"key-{number}"),)
        for _ in range(20):
            health.sample(mappings[-1], keys[name][0], ttft_ms=200 + number, tokens=100, duration_ms=1000)
    providers = tuple(Provider(name, name, "openai") for name in keys)
    catalogue = Catalogue((Model("m", mappings=tuple(mappings)),), providers, {}, "1")
    settings = RoutingSettings(3, 0.01, 3600, 90.0, 7)
    router = Router(lambda: catalogue, health, Sticky(clock, 3600), settings, ("m",), lambda: 0.5, clock)
    return router, lambda mapping: keys[mapping.provider]


def measure(work: Callable[[], object]) -> float:
    """Microseconds of CPU a call: the best of several rounds, so that other processes do not count."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS):
            work()
        best = min(best, time.process_time() - began)
    return best / CALLS * 1e6


def figures() -> dict[str, float]:
    """Microseconds by case."""
    router, usable = build_router()
    plain = Requirements(stream=True, prompt_bytes=400, messages=2)
    special = Requirements(
        stream=True, tools=True, forced_tool="required", effort="low", reasoning=True, prompt_bytes=400
    )
    plan = router.plan("m", plain, Options(), None, usable, scope="p")
    router.served(router.plan("m", plain, Options(), None, usable, session="s", scope="p"), plan.first)
    return {
        PLAIN: measure(lambda: router.plan("m", plain, Options(), None, usable, scope="p")),
        SESSION: measure(lambda: router.plan("m", plain, Options(), None, usable, session="s", scope="p")),
        TOOLS: measure(lambda: router.plan("m", special, Options(), None, usable, scope="p")),
        KEEP: measure(lambda: pack(plan)),
    }


def main() -> int:
    found = figures()
    print(f"{CANDIDATES} candidates, µs of CPU a request")
    for name, cost_us in found.items():
        print(f"  {name:<34}{cost_us:8.1f}")
    return 0 if found[PLAIN] <= BUDGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
