"""Validation of bodies and query parameters with marshmallow schemas, and the fields that all of them use."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import orjson
from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, fields, validate

from gateway import money
from gateway.callers.models import MemberStatus
from gateway.clock import from_datetime
from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.neutral.json_weight import has_more_parts
from gateway.runtime.threads import compute_if
from gateway.surfaces.web.http import Inbound

DECIMAL = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)
WHOLE = re.compile(r"\s*[+-]?\d{1,19}\s*", re.ASCII)
MAX_TIME_LENGTH = 40
MAX_BODY_BYTES = 2 << 20
WORDS_KEY = "words"  # key in a field's metadata: texts that a command accepts for values
# Words of commands for a status.
ON_OFF = {"on": "active", "off": "inactive"}
MAX_PARTS = 50_000  # values, objects and lists of a body: enough for a thousand models with all of their members
THREAD_BYTES = 8192  # bytes of a body that is validated in a thread


class Body(Schema):
    """Input from outside; unknown members are ignored."""

    class Meta:
        unknown = EXCLUDE


class StrictBody(Schema):
    """Unknown members are refused."""

    class Meta:
        unknown = RAISE


def describe_field(about: str, words: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the metadata of a field. `about` is its description in the API description and in the help of commands,
    `words` are texts that a command accepts for its values."""
    metadata: dict[str, Any] = {**more}
    if about:
        metadata["description"] = about
    if words:
        metadata[WORDS_KEY] = words
    return metadata


class TextField(fields.String):
    """Text that every store can keep: without NUL and lone surrogates."""

    def __init__(
        self,
        minimum: int = 0,
        maximum: int = 255,
        about: str = "",
        words: Mapping[str, Any] | None = None,
        example: str = "",
        **more: Any,
    ) -> None:
        checks = [validate.Length(minimum, maximum), *more.pop("checks", ())]
        shown: dict[str, Any] = {"examples": [example]} if example else {}
        super().__init__(validate=checks, metadata=describe_field(about, words, **shown), **more)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> str:
        text = super()._deserialize(value, attr, data, **more)
        if "\0" in text or not _encodable(text):
            raise ValidationError("The text contains characters that cannot be stored.")
        return text


class OneOf(TextField):
    """One of a few strings."""

    def __init__(self, choices: tuple[str, ...], **more: Any) -> None:
        super().__init__(checks=[validate.OneOf(choices)], **more)
        self.choices = choices


class StatusField(OneOf):
    """Whether something is in force: active or inactive."""

    def __init__(self, **more: Any) -> None:
        super().__init__(get_args(MemberStatus), **more)


class QueryFlag(OneOf):
    """True or false in a query, where everything is a string."""

    def __init__(self, **more: Any) -> None:
        super().__init__(("true", "false"), **more)


class WholeNumber(fields.Integer):
    """A whole number within bounds; strings that look like numbers are rejected."""

    def __init__(
        self, minimum: int, maximum: int, about: str = "", words: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        metadata = describe_field(about, words)
        super().__init__(strict=True, validate=validate.Range(minimum, maximum), metadata=metadata, **more)


class StrictBoolean(fields.Boolean):
    """True or false; texts and numbers that look like them are rejected."""

    def __init__(self, about: str = "", **more: Any) -> None:
        super().__init__(truthy={True}, falsy={False}, metadata=describe_field(about), **more)


class QueryInteger(fields.Integer):
    """A whole number within bounds in a query, where everything is a string."""

    def __init__(self, minimum: int, maximum: int, about: str = "", **more: Any) -> None:
        super().__init__(validate=validate.Range(minimum, maximum), metadata=describe_field(about), **more)

    def _validated(self, value: Any) -> Any:
        if isinstance(value, str) and not WHOLE.fullmatch(value):  # int() also reads 1_000 and digits of other scripts
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class Usd(fields.Field[Any]):
    """A non-negative amount of US dollars, as a decimal string or a number; stored as nano-dollars. Blank means
    null."""

    def __init__(self, signed: bool = False, about: str = "", **more: Any) -> None:
        self.signed = signed
        pattern = r"^-?\d{1,9}(\.\d{1,9})?$" if signed else r"^\d{1,9}(\.\d{1,9})?$"
        metadata = describe_field(about, type="string", pattern=pattern, examples=["12.50"])
        super().__init__(metadata=metadata, **more)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> int | None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValidationError('Use an amount of US dollars such as "12.50".')
        if isinstance(value, float) and not math.isfinite(value):
            raise ValidationError('Use an amount of US dollars such as "12.50".')
        text = f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value).strip()
        if not text:
            return None
        sign = -1 if self.signed and text.startswith("-") else 1
        amount = DECIMAL.fullmatch(text[1:] if sign < 0 else text)
        if amount is None:
            raise ValidationError('Use a non-negative decimal amount of US dollars such as "12.50".')
        whole, fraction = amount.groups(default="")
        # Ten billion dollars would not fit the 64 bits of nano-dollars.
        if len(whole) > 9:
            raise ValidationError("The amount is too large; the limit is 999999999 dollars.")
        if len(fraction) > 9:
            raise ValidationError("Use at most nine decimal places.")
        return money.parse_usd(text)


class IsoTime(fields.String):
    """An ISO 8601 time, converted to microseconds since the epoch; without a zone it is UTC."""

    def __init__(self, about: str = "", **more: Any) -> None:
        super().__init__(metadata=describe_field(about, format="date-time"), **more)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> Any:
        text = super()._deserialize(value, attr, data, **more)
        try:
            moment = datetime.fromisoformat(text[:MAX_TIME_LENGTH])
            return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            raise ValidationError("Use an ISO 8601 time such as 2027-01-31T08:00:00Z.") from None


class NameList(fields.List[Any]):
    """A list of names."""

    def __init__(
        self, maximum: int = 1000, longest: int = 255, about: str = "", example: Sequence[str] = (), **more: Any
    ) -> None:
        shown: dict[str, Any] = {"examples": [list(example)]} if example else {}
        metadata = describe_field(about, **shown)
        super().__init__(TextField(1, longest), validate=validate.Length(0, maximum), metadata=metadata, **more)


def read_body(schema: type[Schema], inbound: Inbound) -> dict[str, Any]:
    """Return the validated body. Raises UnsupportedMediaType, or InvalidRequest with the dotted path of the field."""
    if "application/json" not in inbound.header("content-type").lower():
        raise UnsupportedMediaType("Send the body as JSON with the header 'Content-Type: application/json'.")
    if len(inbound.body) > MAX_BODY_BYTES:
        raise InvalidRequest(f"The body is larger than {MAX_BODY_BYTES} bytes.", code="invalid_json")
    raw = inbound.body
    if has_more_parts(raw, MAX_PARTS):  # each part takes the time of its field's validation
        raise InvalidRequest(f"The body has more than {MAX_PARTS:,} parts.", code="request_too_complex")
    return compute_if(len(raw) > THREAD_BYTES, _read, schema, raw)


def _read(schema: type[Schema], raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return _load(schema, body)


def read_query(schema: type[Schema], inbound: Inbound) -> dict[str, Any]:
    """Return the validated query parameters; empty ones count as absent. Raises InvalidRequest."""
    return read_fields(schema, inbound.arguments())


def read_fields(schema: type[Schema], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the validated fields of a query or a form; empty ones count as absent. Raises InvalidRequest."""
    return _load(schema, {name: value for name, value in values.items() if value != ""})


def _load(schema: type[Schema], values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = schema().load(values)
        return loaded
    except ValidationError as error:
        path, reason = _first(error.normalized_messages())
        param = path.removesuffix("._schema").removeprefix("_schema")
        where = f"Invalid value for '{param}': " if param else ""
        raise InvalidRequest(f"{where}{reason}", param=param) from None


def _first(messages: Any, path: str = "") -> tuple[str, str]:
    """Return the dotted path and the text of the first error in marshmallow's tree."""
    while isinstance(messages, dict):
        key = next(iter(messages))
        path = f"{path}.{key}" if path else str(key)
        messages = messages[key]
    return path, str(messages[0] if isinstance(messages, list) else messages)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
