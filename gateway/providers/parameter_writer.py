"""Writes the parameters of chat requests (neutral/parameters.py) into bodies for providers."""

from collections.abc import Iterable
from itertools import compress
from operator import attrgetter, ne
from typing import Any

from gateway.catalogue.entries import Mapping
from gateway.neutral.parameters import PARAMETERS, Parameter, Sampling

Body = dict[str, Any]


class ParameterWriter:
    """Writes all parameters into bodies of a dialect, except those in `apart`, which the dialect writes separately."""

    __slots__ = ("_defaults", "_read", "_rows")

    def __init__(self, dialect: str, apart: Iterable[str] = ()) -> None:
        rows = [row for row in PARAMETERS.values() if row.name not in apart]
        self._rows = [(row, row.upstream.get(dialect, "")) for row in rows]
        self._read = attrgetter(*(row.name for row in rows))
        self._defaults = tuple([row.default for row in rows])

    def write(self, sampling: Sampling, body: Body, warnings: list[str], mapping: Mapping | None = None) -> None:
        """Write the parameters. A warning names each one that the dialect has no field for, or that `mapping` does not
        list among its supported parameters."""
        values = self._read(sampling)
        # Most parameters are absent in most requests, and are passed over without a line of Python.
        for (row, path), value in compress(zip(self._rows, values, strict=True), map(ne, values, self._defaults)):
            if not path:
                if row.is_given(value):
                    warnings.append(f"{row.subject} has no counterpart at this provider and was left out.")
            elif mapping is not None and mapping.supported_parameters and is_unlisted(row, mapping):
                warnings.append(f"{row.subject} is not supported by {mapping.key} and was left out.")
            elif "." in path:
                holder, _, name = path.partition(".")
                body.setdefault(holder, {})[name] = value
            else:
                body[path] = value


def is_unlisted(row: Parameter, mapping: Mapping) -> bool:
    """Return whether a mapping lists its supported parameters without this one."""
    return row.listed and bool(mapping.supported_parameters) and row.name not in mapping.supported_parameters
