"""Work that several ask for at once and one does."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from gateway.errors import Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Of those who ask for a key at the same time the first one works; the others wait for its result."""

    def __init__(self) -> None:
        self._flights: dict[K, Future[V]] = {}

    def do(self, key: K, work: Callable[[], V]) -> V:
        """What `work` gives, or its exception, for all who ask while it runs. Unavailable for those who waited when the
        request that worked was ended by its caller."""
        flight = self._flights.get(key)
        if flight is not None:
            return flight.result()
        flight = self._flights[key] = Future()
        try:
            value = work()
        except Exception as error:
            flight.set_exception(error)
            raise
        except BaseException:
            flight.set_exception(Unavailable())
            raise
        finally:
            del self._flights[key]
        flight.set_result(value)
        return value
