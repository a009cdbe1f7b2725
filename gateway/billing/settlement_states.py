"""The states of a request's settlement, and the transitions between them."""

from gateway.errors import Internal

ADMITTED = "admitted"  # its upper bound is reserved, calls may begin
KEPT = "kept"  # its caller left, and somebody will read on and close it: the next close is not the last
READ_ON = "read_on"  # nobody waits for it, the upstream's answer is read on
SETTLED = "settled"  # the answer's entry was appended
HELD = "held"  # the answer's row waits for the payload that it is written with
ABANDONED = "abandoned"  # what became of a broken answer was appended
CLOSED = "closed"  # nothing is held any more


class Transitions(dict[tuple[str, str], str]):
    """(state, action) → state; a transition that is not listed is a mistake in this program."""

    def __missing__(self, transition: tuple[str, str]) -> str:
        raise Internal(f"A settlement that is {transition[0]} does not take: {transition[1]}.")


TRANSITIONS = Transitions(
    {
        (ADMITTED, "begin"): ADMITTED,
        (ADMITTED, "unused"): ADMITTED,
        (ADMITTED, "failed"): ADMITTED,
        (ADMITTED, "settle"): SETTLED,
        (ADMITTED, "hold"): HELD,
        (ADMITTED, "abandon"): ABANDONED,
        (ADMITTED, "keep"): KEPT,
        (ADMITTED, "close"): CLOSED,
        (KEPT, "hold"): HELD,
        (KEPT, "abandon"): ABANDONED,
        (KEPT, "close"): READ_ON,
        (READ_ON, "hold"): HELD,
        (READ_ON, "abandon"): ABANDONED,
        (READ_ON, "close"): CLOSED,
        (SETTLED, "keep"): SETTLED,
        (SETTLED, "close"): CLOSED,
        (HELD, "keep"): HELD,
        (HELD, "close"): CLOSED,
        (ABANDONED, "keep"): ABANDONED,
        (ABANDONED, "close"): CLOSED,
        (CLOSED, "close"): CLOSED,
    }
)
