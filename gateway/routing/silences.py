"""Calls that are silent at the same time: several of them at one mapping mean that it hangs."""

from gateway.clock import Clock

SILENT_TOGETHER = 3
# A call that is still silent is noted again within a second or two.
FORGOTTEN_S = 5.0
MAX_KEYS = 1024


class Silences:
    """The calls of one worker that are silent for longer than is usual, by mapping."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, dict[str, float]] = {}

    def note(self, key: str, request: str) -> bool:
        """Note that a request's call of a mapping is silent, which is repeated while it is. Return whether several
        are."""
        now = self._clock.monotonic()
        if key not in self._silent and len(self._silent) >= MAX_KEYS:
            self._silent.clear()
        known = {other: at for other, at in self._silent.get(key, {}).items() if now - at <= FORGOTTEN_S}
        known[request] = now
        self._silent[key] = known
        return len(known) >= SILENT_TOGETHER
