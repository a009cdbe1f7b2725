"""Requests and tokens per minute and requests at once, per organization, project, key and model; off by default."""


class Slot:
    """One admitted request; `release` on every path out, with the tokens that it used."""

    def release(self, tokens: int = 0) -> None: ...


class Rates:
    def enter(self, organization: str, project: str, key: str, model: str, prompt_bytes: int) -> Slot:
        return Slot()
