"""Users and groups as SCIM resources, and the values of users that requests state."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.accounts.member_attributes import ENTERPRISE
from gateway.accounts.provisioning.provisioned_groups import ProvisionedGroup
from gateway.accounts.provisioning.user_rows import ProvisionedUser, UserValues
from gateway.clock import to_iso
from gateway.errors import InvalidRequest
from gateway.surfaces.scim.attributes import (
    COMMON,
    CORE_GROUP,
    CORE_USER,
    EMAILS,
    USER,
    ScimAttribute,
    ScimResourceType,
    resolve,
)

# Values of attributes in requests: their types, the forms in which identity providers send them, and their limits.

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


MAX_NAME_LENGTH = 255
MAX_ATTRIBUTES_LENGTH = 16_384  # characters of the stored attributes of a user
# Attributes with a column. All others are stored as JSON.
COLUMNS = ("userName", "externalId", "active")
# Attributes that are returned whatever the query excludes (RFC 7644, section 3.9).
ALWAYS = ("schemas", "id")


def document_of(user: ProvisionedUser) -> dict[str, Any]:
    """Return the attributes of a user that a client may change."""
    document: dict[str, Any] = {"userName": user.user_name, "active": user.active}
    if user.external_id:
        document["externalId"] = user.external_id
    if user.managed:
        return {**document, **user.attributes}
    if user.account_name:
        document["displayName"] = user.account_name
    return {**document, "emails": [{"value": user.account_email, "type": "work", "primary": True}]}


def values_of(document: Mapping[str, Any]) -> UserValues:
    """Return the values that a changed document states. Raises InvalidRequest."""
    user_name = document.get("userName")
    if not isinstance(user_name, str) or not user_name.strip():
        raise refuse(USER.by_name["username"], "it is required")
    check_text(USER.by_name["username"], user_name, MAX_NAME_LENGTH)
    external_id = document.get("externalId", "")
    check_text(COMMON["externalid"], external_id, MAX_NAME_LENGTH)
    attributes = {name: value for name, value in document.items() if name not in COLUMNS}
    if len(str(attributes)) > MAX_ATTRIBUTES_LENGTH:
        text = f"The attributes of a user have at most {MAX_ATTRIBUTES_LENGTH:,} characters."
        raise InvalidRequest(text, code="invalid_value")
    return UserValues(
        user_name=user_name.strip(),
        email=_email_of(document),
        active=document.get("active", True),
        external_id=external_id,
        name=_shown_name(document)[:MAX_NAME_LENGTH],
        attributes=attributes,
    )


def show_user(user: ProvisionedUser, base_url: str) -> dict[str, Any]:
    """Return a user as a resource."""
    document = document_of(user)
    schemas = [CORE_USER, *([ENTERPRISE] if ENTERPRISE in document else [])]
    shown: dict[str, Any] = {"schemas": schemas, "id": user.id, **document}
    if user.groups:
        shown["groups"] = [
            {"value": group_id, "$ref": f"{base_url}/Groups/{group_id}", "display": name}
            for group_id, name in user.groups
        ]
    shown["meta"] = _meta("User", f"{base_url}/Users/{user.id}", user)
    return shown


def show_group(group: ProvisionedGroup, base_url: str) -> dict[str, Any]:
    """Return a group as a resource."""
    shown: dict[str, Any] = {"schemas": [CORE_GROUP], "id": group.id, "displayName": group.name}
    if group.external_id:
        shown["externalId"] = group.external_id
    shown["members"] = [
        {"value": member_id, "$ref": f"{base_url}/Users/{member_id}", "type": "User"} for member_id in group.member_ids
    ]
    shown["meta"] = _meta("Group", f"{base_url}/Groups/{group.id}", group)
    return shown


def etag_of(resource: ProvisionedUser | ProvisionedGroup) -> str:
    """Return the entity tag of a resource; it is weak, because the JSON may change while the resource does not."""
    return f'W/"{resource.version}"'


def project(kind: ScimResourceType, shown: dict[str, Any], wanted: str, excluded: str) -> dict[str, Any]:
    """Return the attributes of a resource that a query selects by `attributes` or `excludedAttributes`."""
    if wanted:
        return _select(kind, shown, _names(wanted))
    for name in _names(excluded):
        shown = _without(kind, shown, name)
    return shown


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")[:200] if name.strip()]


def _select(kind: ScimResourceType, shown: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    selected: dict[str, Any] = {name: shown[name] for name in ALWAYS}
    for name in names:
        path = resolve(kind, name)
        source = shown.get(path.extension, {}) if path.extension else shown
        target = selected.setdefault(path.extension, {}) if path.extension else selected
        if path.attribute is None:
            target |= source if path.extension else {}
        elif path.attribute.name in source:
            found = source[path.attribute.name]
            if path.part is not None:
                before = target.get(path.attribute.name)
                found = _pick(found, path.part.name, before)
            target[path.attribute.name] = found
    return selected


def _pick(found: Any, part: str, before: Any) -> Any:
    """Return a complex value with one sub-attribute, beside those that were selected before."""
    if isinstance(found, list):
        kept = before if isinstance(before, list) else [{} for _ in found]
        return [
            {**chosen, part: one[part]} if part in one else chosen for chosen, one in zip(kept, found, strict=False)
        ]
    return {**(before or {}), **({part: found[part]} if part in found else {})}


def _without(kind: ScimResourceType, shown: dict[str, Any], name: str) -> dict[str, Any]:
    path = resolve(kind, name)
    attribute = path.attribute
    if attribute is None:
        return {key: value for key, value in shown.items() if key != (path.extension or None)}
    if attribute.name in ALWAYS:
        return shown
    if path.extension:
        inner = {key: value for key, value in shown.get(path.extension, {}).items() if key != attribute.name}
        return {**shown, path.extension: inner} if path.extension in shown else shown
    part = path.part
    if part is None or attribute.name not in shown:
        return {key: value for key, value in shown.items() if key != attribute.name}
    found = shown[attribute.name]
    if isinstance(found, list):
        return {**shown, attribute.name: [_dropped(value, part.name) for value in found]}
    return {**shown, attribute.name: _dropped(found, part.name)}


def _dropped(value: dict[str, Any], part: str) -> dict[str, Any]:
    return {key: one for key, one in value.items() if key != part}


def _meta(kind: str, location: str, resource: ProvisionedUser | ProvisionedGroup) -> dict[str, Any]:
    return {
        "resourceType": kind,
        "created": to_iso(resource.created_at_us),
        "lastModified": to_iso(resource.updated_at_us),
        "location": location,
        "version": etag_of(resource),
    }


def _email_of(document: Mapping[str, Any]) -> str:
    """Return the address of the account: the primary one, else that of type work, else the first, else userName."""
    stated = [email for email in document.get("emails", []) if email.get("value")]
    ranked = sorted(stated, key=_email_rank)
    if ranked:
        address: str = ranked[0]["value"]
    else:
        address = document["userName"]
    if "@" not in address:
        raise refuse(EMAILS, "the user needs an e-mail address, as emails or as userName")
    return address


def _email_rank(email: Mapping[str, Any]) -> int:
    if email.get("primary"):
        return 0
    if str(email.get("type", "")).lower() == "work":
        return 1
    return 2


def _shown_name(document: Mapping[str, Any]) -> str:
    """Return the name for the console: displayName, else the full name, else given and family name."""
    name = document.get("name", {})
    parts = (name.get("givenName", ""), name.get("familyName", ""))
    shown: str = document.get("displayName") or name.get("formatted") or " ".join(part for part in parts if part)
    return shown
