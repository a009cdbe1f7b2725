"""Where a session, or the transcription of what is said in it, is served."""

from dataclasses import dataclass

from gateway.providers.protocol import Target
from gateway.routing.decision import Plan


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session is served: the target, the decision that led there, and what a caller calls the model."""

    target: Target
    plan: Plan
    requested_model: str
