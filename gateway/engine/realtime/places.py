"""The place where a session, or the transcription of its speech, is served."""

from msgspec import Struct

from gateway.providers.protocol import Target
from gateway.routing.decision import Plan


class SessionPlace(Struct, frozen=True):
    """A target, the decision that chose it, and the model's name as the caller wrote it."""

    target: Target
    plan: Plan
    requested_model: str


def no_content() -> None:
    """Stand in for the content of a request that is only planned or admitted, never sent."""
