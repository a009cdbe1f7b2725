"""How many tokens a response of a session may have, as far as that is certain."""

MOST_ASKED = 1_000  # changes that a provider has not answered; then no limit is believed any more


class OutputLimit:
    """What a session's caller wants the limit to be, and what the provider has confirmed. More counts as soon as it is
    asked for, less once the provider says so and nothing else is asked for: it may refuse a change, or take it later
    than a response. `most` is 0 where there is no limit, as are the limits that are given."""

    def __init__(self) -> None:
        self.most = 0
        self._asked: list[str] | None = []  # changes that the provider has not answered, by the event's id

    def ask(self, event: str, most: int | None) -> None:
        """The session is changed by an event; None says nothing about the limit."""
        if self._asked is not None:
            self._asked.append(event)
            if len(self._asked) > MOST_ASKED:
                self._asked, self.most = None, 0
        if most is not None and (most == 0 or most > self.most > 0):
            self.most = most

    def settle(self, most: int | None) -> None:
        """The provider told what a change made of the session; None where it tells it unasked."""
        if self._asked is None or most is None:
            return
        if self._asked:
            self._asked.pop(0)
        if not self._asked:
            self.most = most

    def refuse(self, event: str) -> None:
        """The provider did not take an event of the caller."""
        if self._asked is not None and event in self._asked:
            self._asked.remove(event)
