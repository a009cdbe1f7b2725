"""Values of attributes in requests: their types, the forms in which identity providers send them, and their limits."""

from typing import Any

from gateway.errors import InvalidRequest
from gateway.surfaces.scim.attributes import ScimAttribute

MAX_TEXT_LENGTH = 1_024  # characters
MAX_VALUES = 50  # of a multi-valued attribute of a user


def read_value(attribute: ScimAttribute, value: Any) -> Any:
    """Return a value of an attribute in the form in which it is stored; None for an absent one.

    Entra ID sends booleans as the texts "True" and "False". Raises InvalidRequest (code invalid_value).
    """
    if value is None or value == "" or value == []:
        return None
    if attribute.multi:
        given = value if isinstance(value, list) else [value]
        if len(given) > MAX_VALUES:
            raise refuse(attribute, f"it has at most {MAX_VALUES} values")
        values = [read_single(attribute, value) for value in given]
        return keep_one_primary([value for value in values if value])
    read = read_single(attribute, value)
    return None if read == {} else read


def read_single(attribute: ScimAttribute, value: Any) -> Any:
    """Return one value of an attribute. A text stands for the `value` of a complex attribute."""
    if attribute.type == "complex":
        if isinstance(value, str):
            value = {"value": value}
        if not isinstance(value, dict):
            raise refuse(attribute, "an object is expected")
        return _read_parts(attribute, value)
    if attribute.type == "boolean":
        return read_boolean(attribute, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise refuse(attribute, "a text is expected")
    check_text(attribute, value)
    return value


def read_boolean(attribute: ScimAttribute, value: Any) -> bool:
    """Return a boolean, also of the texts "True" and "False" in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise refuse(attribute, "true or false is expected")


def check_text(attribute: ScimAttribute, text: str, longest: int = MAX_TEXT_LENGTH) -> None:
    """Raise InvalidRequest for a text that is too long, or that a store cannot keep."""
    if len(text) > longest:
        raise refuse(attribute, f"it has at most {longest:,} characters")
    if "\0" in text:
        raise refuse(attribute, "it contains a character that cannot be stored")


def keep_one_primary(values: list[Any]) -> list[Any]:
    """Return the values with at most one primary one, the last that was given."""
    primary = [value for value in values if value.get("primary")]
    for value in primary[:-1]:
        value["primary"] = False
    return values


def refuse(attribute: ScimAttribute, reason: str) -> InvalidRequest:
    """Return the error for a value of an attribute."""
    return InvalidRequest(f"Invalid value for {attribute.name}: {reason}.", param=attribute.name, code="invalid_value")


def _read_parts(attribute: ScimAttribute, given: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in given.items():
        part = attribute.part(name)
        if part is not None and part.mutability != "readOnly":
            found = read_value(part, value)
            if found is not None:
                read[part.name] = found
    return read
