"""JSON bodies of the service's own format, decoded and validated."""

from collections.abc import Hashable
from typing import TypeVar, cast

from msgspec import DecodeError, ValidationError
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.surfaces.bodies.lenient_parsing import decode_again
from gateway.surfaces.bodies.validation_errors import explain, readable, words_of
from gateway.surfaces.web import caps as caps_module

T = TypeVar("T")


def read_json(limits: LimitSettings, decoder: Decoder[T], raw: bytes) -> T:
    """Return the decoded body of a request.

    Raises InvalidRequest `invalid_json`, `request_too_complex`, or `invalid_parameters` with `param` set.
    """
    return caps_module.read(limits, raw, decode_json, decoder, raw)


def decode_json(decoder: Decoder[T], raw: bytes) -> T:
    """Decode a body as `read_json` does, after its parts were counted."""
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        try:
            repaired: T = decode_again(decoder, raw, error)
        except ValidationError as still:
            raise explain(str(still), words_of(cast(Hashable, decoder.type))) from None
        return repaired
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        return decode_json(decoder, readable(raw, error))
