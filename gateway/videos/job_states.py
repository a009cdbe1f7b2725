"""The states of a video job, and the moves between them."""

from gateway.errors import Internal

CREATING = "creating"  # its budgets are held, and no provider has said that it has it
QUEUED = "queued"  # a provider has it and has not begun
IN_PROGRESS = "in_progress"
COMPLETED = "completed"  # the video is there, and paid for
FAILED = "failed"  # the four that follow cost nothing
CANCELED = "canceled"
EXPIRED = "expired"  # the provider gave it up after a while

# Ends: nothing is held any more, the usage row is written, the callback is on its way.
ENDS = frozenset((COMPLETED, FAILED, CANCELED, EXPIRED))
RUNNING = (QUEUED, IN_PROGRESS)


class Moves(dict[tuple[str, str], str]):
    """(state, what happened) → state; a move that is not listed is a mistake in this program."""

    def __missing__(self, move: tuple[str, str]) -> str:
        raise Internal(f"A video job that is {move[0]} does not take: {move[1]}.")


MOVES = Moves(
    {
        # A provider took it.
        (CREATING, "accepted"): QUEUED,
        # Its worker died before a provider's word was written down.
        (CREATING, "lost"): FAILED,
        # What the provider says of it; a provider may put a job back.
        (QUEUED, QUEUED): QUEUED,
        (QUEUED, IN_PROGRESS): IN_PROGRESS,
        (IN_PROGRESS, IN_PROGRESS): IN_PROGRESS,
        (IN_PROGRESS, QUEUED): QUEUED,
        **{(state, end): end for state in RUNNING for end in ENDS},
    }
)
