"""What one needs to see of a run of an agent that went wrong."""

from collections.abc import Callable

from agents.clients import Run
from agents.upstreams import Model
from support.gateways import GatewayProcess

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]


def account(models: list[Model], run: Run, gateway: GatewayProcess) -> str:
    """Return the ends of the agent's output and of the gateway's log, with the calls of the models."""
    calls = [f"{call.status} {call.problem}" for model in models for call in model.calls]
    return "\n".join([f"exit {run.code}", run.out[-2000:], run.err[-3000:], *calls, gateway.log()[-2000:]])
