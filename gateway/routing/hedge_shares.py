"""The share of requests that get a second attempt beside the first one (engine/hedging.py), for each project."""

SHARE = 0.1  # of a project's requests in one worker
BURST = 10.0  # second attempts that a share saves up
MAX_PROJECTS = 4096


class HedgeShares:
    """Second attempts that each project has left. The projects that were quiet for the longest are forgotten first, and
    begin with a full burst again."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}

    def count(self, project: str) -> None:
        """Count a request that may get a second attempt."""
        left = self._left.pop(project, BURST)
        if len(self._left) >= MAX_PROJECTS:
            self._left.pop(next(iter(self._left)))
        self._left[project] = min(BURST, left + SHARE)

    def take(self, project: str) -> bool:
        """Take one second attempt; return whether there was one."""
        left = self._left.get(project, BURST)
        if left < 1.0:
            return False
        self._left[project] = left - 1.0
        return True

    def give_back(self, project: str) -> None:
        """Return a second attempt that could not be begun."""
        self._left[project] = self._left.get(project, BURST) + 1.0
