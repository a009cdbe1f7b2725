"""The parameters of chat requests (neutral/parameters.py) in the bodies of callers: their fields, and their values."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, defstruct

from gateway.neutral.parameters import PARAMETERS, Sampling

T = TypeVar("T", bound=Struct)


def with_parameters(dialect: str, path: str = "", kind: Any = None) -> Callable[[type[T]], type[T]]:
    """Return a decorator that adds to the struct of a body the fields of all parameters of its dialect that the struct
    does not declare. `path` is the place of the struct in the body ("": the body itself), `kind` the type of the
    fields instead of those of the rows."""

    def extend(declared: type[T]) -> type[T]:
        added: list[tuple[str, Any, Any]] = []
        for row in PARAMETERS.values():
            holder, _, name = row.callers.get(dialect, "").rpartition(".")
            if name and holder == path and name not in declared.__struct_fields__:
                added.append((name, kind or row.type | None, None))
        extended = defstruct(
            declared.__name__, added, bases=(declared,), module=declared.__module__, kw_only=True, gc=False
        )
        extended.__doc__ = declared.__doc__
        return extended  # type: ignore[return-value]

    return extend


class ParameterReader:
    """Reads the parameters that a dialect has a field for, except those in `apart`, which it reads separately.

    A body is a struct, with structs or None in the fields that dotted paths go through.
    """

    __slots__ = ("_readers",)

    def __init__(self, dialect: str, apart: Iterable[str] = ()) -> None:
        self._readers = [
            (row.name, reader_of(row.callers[dialect]))
            for row in PARAMETERS.values()
            if dialect in row.callers and row.name not in apart
        ]

    def read(self, body: Any, **apart: Any) -> Sampling:
        """Return the body's parameters; `apart` has the values of those that the dialect reads separately."""
        given = {name: value for name, read in self._readers if (value := read(body)) is not None}
        return Sampling(**apart, **given)


def reader_of(path: str) -> Callable[[Any], Any]:
    """Return a function that reads the field at a dotted path, None where an object on the path is absent."""
    *holders, name = path.split(".")
    if not holders:
        return attrgetter(name)

    def read(body: Any) -> Any:
        for holder in holders:
            body = getattr(body, holder)
            if body is None:
                return None
        return getattr(body, name)

    return read
