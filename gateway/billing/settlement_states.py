"""The states of a request's settlement, and the transitions between them."""

from gateway.errors import Internal

ADMITTED = "admitted"  # the upper bound is reserved, calls may begin
READING_ON = "kept"  # the caller left; a background reader will continue and close, so the next close is not the last
READ_ON = "read_on"  # the upstream's answer is read in the background
SETTLED = "settled"  # the answer's entry was appended
AWAITING_PAYLOAD = "held"  # the answer's row waits for its payload
ABANDONED = "abandoned"  # the entry of a broken answer was appended
CLOSED = "closed"  # nothing is reserved any more


class Transitions(dict[tuple[str, str], str]):
    """(state, action) → state. An unlisted transition is a programming error."""

    def __missing__(self, transition: tuple[str, str]) -> str:
        raise Internal(f"A settlement in the state {transition[0]} does not support {transition[1]}.")


TRANSITIONS = Transitions(
    {
        (ADMITTED, "begin"): ADMITTED,
        (ADMITTED, "unused"): ADMITTED,
        (ADMITTED, "failed"): ADMITTED,
        (ADMITTED, "settle"): SETTLED,
        (ADMITTED, "hold"): AWAITING_PAYLOAD,
        (ADMITTED, "abandon"): ABANDONED,
        (ADMITTED, "keep"): READING_ON,
        (ADMITTED, "close"): CLOSED,
        (READING_ON, "hold"): AWAITING_PAYLOAD,
        (READING_ON, "abandon"): ABANDONED,
        (READING_ON, "close"): READ_ON,
        (READ_ON, "hold"): AWAITING_PAYLOAD,
        (READ_ON, "abandon"): ABANDONED,
        (READ_ON, "close"): CLOSED,
        (SETTLED, "keep"): SETTLED,
        (SETTLED, "close"): CLOSED,
        (AWAITING_PAYLOAD, "keep"): AWAITING_PAYLOAD,
        (AWAITING_PAYLOAD, "close"): CLOSED,
        (ABANDONED, "keep"): ABANDONED,
        (ABANDONED, "close"): CLOSED,
        (CLOSED, "close"): CLOSED,
    }
)
