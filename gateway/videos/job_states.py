"""The states of a video job, and the transitions between them."""

from gateway.errors import Internal
from gateway.neutral.videos import FINAL_STATES

CREATING = "creating"  # the budgets are reserved, but no provider has accepted the job
QUEUED = "queued"  # a provider has accepted it and not started
IN_PROGRESS = "in_progress"
COMPLETED = "completed"  # the video is ready and charged
# Failed, canceled and expired jobs (the provider's timeout) cost nothing.
FAILED = "failed"
CANCELED = "canceled"
RUNNING = (QUEUED, IN_PROGRESS)


class Moves(dict[tuple[str, str], str]):
    """(state, event) → state. An unlisted transition is a programming error."""

    def __missing__(self, move: tuple[str, str]) -> str:
        raise Internal(f"A video job in the state {move[0]} does not support {move[1]}.")


MOVES = Moves(
    {
        # A provider accepted it.
        (CREATING, "accepted"): QUEUED,
        # Its worker died before the acceptance was recorded.
        (CREATING, "lost"): FAILED,
        # The status reported by the provider, which may put a job back into its queue. After a final one nothing is
        # reserved any more, the usage row is written and the callback is queued.
        **{(state, reported): reported for state in RUNNING for reported in (*RUNNING, *FINAL_STATES)},
    }
)
