"""The checks before a stored conversation is loaded, and the memory that it takes."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from gateway.engine.owner_turns import OwnerTurns
from gateway.neutral.json_parts import LARGE
from gateway.neutral.json_weight import weigh
from gateway.runtime.byte_budget import ByteBudget
from gateway.transport.answer_room import KeptBytes


def no_check() -> None:
    """Check nothing: the conversation is only read."""


class ConversationLoad:
    """The load of what one request continues. The bytes count against the budgets of the caller's organization and of
    the worker as long as this object exists.

    `check` raises what would refuse the request whatever it continues: it is called once, before the first conversation
    of more than LARGE bytes is read.
    """

    def __init__(
        self, budget: ByteBudget | None, turns: OwnerTurns, owner: str, check: Callable[[], object] = no_check
    ) -> None:
        self._kept = KeptBytes(budget)
        self._turns = turns
        self._owner = owner
        self._check: Callable[[], object] = check

    def begin(self, size: int) -> AbstractContextManager[None]:
        """Count the `size` bytes of a conversation's texts, and wait until the organization loads no other. Overloaded
        if there is no room, and the errors of `check`."""
        if size > LARGE:
            check = self._check
            self._check = no_check
            check()
        self._kept.grow(size)
        return self._turns.turn(self._owner)

    def weigh_texts(self, texts: Iterable[bytes], counted: int = 0) -> None:
        """Count what is decoded from these texts, of which `counted` bytes are counted. Overloaded."""
        self._kept.grow(sum(map(weigh, texts)) - counted)
