"""The settings of the database."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gateway.configuration.value_parsing import NumberRange


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str = field(repr=False)
    data_dir: str
    pool_size: Annotated[int, NumberRange(1)]
    pool_wait_s: float
    when_away: Literal["refuse", "serve"] = "refuse"
    away_s: Annotated[float, NumberRange(1, 86_400)] = 60.0
    away_usd: Annotated[float, NumberRange(0, 1_000_000)] = 20.0
    replica_url: str = field(default="", repr=False)
    replica_lag_s: Annotated[float, NumberRange(5, 86_400)] = 30.0

    @property
    def coast_s(self) -> float:
        """Return how long a worker serves without the database; 0 for not at all, as on SQLite."""
        if self.when_away == "serve" and self.scheme == "postgresql":
            return self.away_s
        return 0.0

    @property
    def scheme(self) -> str:
        """Return the kind of database in `url`: "sqlite" (also for ""), "postgresql", or an unknown scheme."""
        return scheme_of(self.url)


def scheme_of(url: str) -> str:
    """Return the kind of database at an address, as `DatabaseSettings.scheme`."""
    named = url.partition("://")[0].partition("+")[0]
    return {"": "sqlite", "postgres": "postgresql"}.get(named, named)
