"""PATCH of users (RFC 7644, section 3.5.2), in the forms that Entra ID and Okta send."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.surfaces.scim import resources
from gateway.surfaces.scim.attributes import AttributePath, ScimAttribute, ScimResourceType, resolve
from gateway.surfaces.scim.filters import Comparison, Conjunction, FilterNode, PatchPath, matches_value, parse_path
from gateway.surfaces.scim.scim_answers import ADD, REMOVE, REPLACE, ScimPatch, ScimPatchOperation, read_members

MAX_OPERATIONS = 1_000

Document = dict[str, Any]


class PatchOperation(Struct, frozen=True):
    """An operation: add, replace or remove, its path as text ("": the resource itself), and its value."""

    name: str
    path: str
    value: Any


def read_operations(body: Mapping[str, Any]) -> list[PatchOperation]:
    """Return the operations of a PATCH body. Names of operations may be capitalized, as Entra ID sends them. Raises
    InvalidRequest."""
    given = read_members(ScimPatch, body).get("Operations")
    if not isinstance(given, list) or not given:
        raise InvalidRequest("A PATCH needs a list of Operations.", param="Operations", code="invalid_json")
    if len(given) > MAX_OPERATIONS:
        text = f"A PATCH has at most {MAX_OPERATIONS:,} operations."
        raise InvalidRequest(text, param="Operations", code="too_many")
    return [_read_operation(operation) for operation in given]


def _read_operation(given: Any) -> PatchOperation:
    if not isinstance(given, dict):
        raise InvalidRequest("An operation must be an object.", param="Operations", code="invalid_json")
    operation = cast(ScimPatchOperation, given)
    name = operation.get("op")
    path = operation.get("path") or ""
    if not isinstance(name, str) or name.lower() not in (ADD, REPLACE, REMOVE):
        raise InvalidRequest("op must be add, replace or remove.", param="op", code="invalid_json")
    if not isinstance(path, str):
        raise InvalidRequest("path must be a text.", param="path", code="invalid_path")
    if not path and name.lower() == REMOVE:
        raise InvalidRequest("remove needs a path.", param="path", code="no_target")
    return PatchOperation(name.lower(), path.strip(), operation.get("value"))


def assign(kind: ScimResourceType, document: Document, given: Mapping[str, Any]) -> None:
    """Set the attributes that a POST or PUT states. Read-only and unknown ones are ignored."""
    for name, value in given.items():
        path = resolve(kind, name)
        if path.is_known and not _is_read_only(path):
            _set(kind, document, PatchPath(name), path, REPLACE, value)


def apply(kind: ScimResourceType, document: Document, operation: PatchOperation) -> None:
    """Apply an operation to a document. Raises InvalidRequest (codes invalid_path, no_target, read_only,
    invalid_value)."""
    if operation.path:
        parsed = parse_path(operation.path)
        _apply_at(kind, document, operation.name, parsed, operation.value)
        return
    if not isinstance(operation.value, dict):
        text = "Without a path, the value must be an object with the attributes."
        raise InvalidRequest(text, param="value", code="invalid_value")
    for name, value in operation.value.items():
        # Entra ID sends paths as names of members: "name.givenName" or emails[type eq "work"].value.
        parsed = parse_path(name) if "[" in name else PatchPath(name)
        path = resolve(kind, parsed.attribute)
        if path.is_known and not _is_read_only(path):
            _apply_at(kind, document, operation.name, parsed, value)


def _apply_at(kind: ScimResourceType, document: Document, name: str, parsed: PatchPath, value: Any) -> None:
    path = resolve(kind, parsed.attribute)
    if not path.is_known:
        if path.discarded:
            return
        raise InvalidRequest(f"There is no attribute {parsed.attribute[:80]}.", param="path", code="invalid_path")
    if _is_read_only(path):
        raise InvalidRequest(f"{parsed.attribute[:80]} is read-only.", param="path", code="read_only")
    if name == REMOVE:
        _remove(document, parsed, path, value)
    else:
        _set(kind, document, parsed, path, name, value)


def _is_read_only(path: AttributePath) -> bool:
    return any(
        attribute is not None and attribute.mutability == "readOnly" for attribute in (path.attribute, path.part)
    )


def _set(
    kind: ScimResourceType, document: Document, parsed: PatchPath, path: AttributePath, name: str, value: Any
) -> None:
    """Add or replace the value at a path."""
    attribute = path.attribute
    if attribute is None:
        if not isinstance(value, dict):
            raise InvalidRequest("The value of an extension is an object.", param="value", code="invalid_value")
        assign(kind, document, {f"{path.extension}:{key}": item for key, item in value.items()})
        return
    holder = document.setdefault(path.extension, {}) if path.extension else document
    if parsed.chosen is not None:
        _set_chosen(holder, attribute, parsed, parsed.chosen, name, value)
    elif path.part is not None:
        _set_part(holder, attribute, path.part, value)
    else:
        _set_whole(holder, attribute, name, value)
    _drop_empty(document, path.extension)


def _set_whole(holder: Document, attribute: ScimAttribute, name: str, value: Any) -> None:
    read = resources.read_value(attribute, value)
    if read is None:
        if attribute.required or attribute.kept:
            raise resources.refuse(attribute, "it needs a value")
        if name == REPLACE:
            holder.pop(attribute.name, None)
    elif attribute.multi:
        before = holder.get(attribute.name, []) if name == ADD else []
        _store(holder, attribute, [*before, *(value for value in read if value not in before)])
    elif attribute.type == "complex":
        holder[attribute.name] = {**holder.get(attribute.name, {}), **read}
    else:
        holder[attribute.name] = read


def _set_part(holder: Document, attribute: ScimAttribute, part: ScimAttribute, value: Any) -> None:
    read = resources.read_value(part, value)
    if not attribute.multi:
        _put(holder.setdefault(attribute.name, {}), part, read)
        return
    stored = holder.setdefault(attribute.name, [{}])
    for value in stored:
        _put(value, part, read)
    _store(holder, attribute, stored)


def _set_chosen(
    holder: Document, attribute: ScimAttribute, parsed: PatchPath, chosen: FilterNode, name: str, value: Any
) -> None:
    """Change the values that fulfil a filter. `add` creates the value that the filter describes if there is none."""
    if not attribute.multi:
        raise InvalidRequest(f"{attribute.name} has no list of values.", param="path", code="invalid_path")
    stored = holder.get(attribute.name, [])
    targets = [value for value in stored if matches_value(chosen, attribute, value)]
    if not targets:
        if name == REPLACE:
            text = f"There is no value of {attribute.name} that fulfils the filter."
            raise InvalidRequest(text, param="path", code="no_target")
        targets = [dict(_described(attribute, chosen))]
        stored = [*stored, *targets]
    for target in targets:
        if parsed.part:
            _put(
                target, _part_of(attribute, parsed.part), resources.read_value(_part_of(attribute, parsed.part), value)
            )
        else:
            target |= resources.read_single(attribute, value)
    if parsed.part.lower() == "primary" or not parsed.part:
        # The last primary value stays, so the changed ones come last.
        stored = [value for value in stored if not any(value is target for target in targets)] + targets
    _store(holder, attribute, stored)


def _remove(document: Document, parsed: PatchPath, path: AttributePath, value: Any) -> None:
    attribute = path.attribute
    if attribute is None:
        document.pop(path.extension, None)
        return
    if attribute.required or attribute.kept:
        raise resources.refuse(attribute, "it cannot be removed")
    holder = document.get(path.extension, {}) if path.extension else document
    stored = holder.get(attribute.name)
    if stored is None:
        return
    if parsed.chosen is not None:
        _remove_chosen(holder, attribute, parsed, parsed.chosen)
    elif path.part is not None:
        for value in stored if isinstance(stored, list) else [stored]:
            value.pop(path.part.name, None)
        _store(holder, attribute, stored)
    elif attribute.multi and isinstance(value, list):
        gone = {item.get("value") for item in resources.read_value(attribute, value) or []}
        _store(holder, attribute, [value for value in stored if value.get("value") not in gone])
    else:
        del holder[attribute.name]
    _drop_empty(document, path.extension)


def _remove_chosen(holder: Document, attribute: ScimAttribute, parsed: PatchPath, chosen: FilterNode) -> None:
    stored = holder[attribute.name]
    if not isinstance(stored, list):
        raise InvalidRequest(f"{attribute.name} has no list of values.", param="path", code="invalid_path")
    if parsed.part:
        part = _part_of(attribute, parsed.part)
        for value in stored:
            if matches_value(chosen, attribute, value):
                value.pop(part.name, None)
        _store(holder, attribute, stored)
        return
    _store(holder, attribute, [value for value in stored if not matches_value(chosen, attribute, value)])


def _part_of(attribute: ScimAttribute, name: str) -> ScimAttribute:
    part = attribute.part(name)
    if part is None:
        raise InvalidRequest(f"{attribute.name} has no {name[:80]}.", param="path", code="invalid_path")
    return part


def _put(target: Document, part: ScimAttribute, read: Any) -> None:
    if read is None:
        target.pop(part.name, None)
    else:
        target[part.name] = read


def _store(holder: Document, attribute: ScimAttribute, stored: Any) -> None:
    """Store the values of an attribute, or remove it if none is left."""
    if isinstance(stored, list):
        stored = resources.keep_one_primary([value for value in stored if value])
        if len(stored) > resources.MAX_VALUES:
            raise resources.refuse(attribute, f"it has at most {resources.MAX_VALUES} values")
    if stored:
        holder[attribute.name] = stored
    else:
        holder.pop(attribute.name, None)


def _drop_empty(document: Document, extension: str) -> None:
    if extension and not document.get(extension):
        document.pop(extension, None)


def _described(attribute: ScimAttribute, chosen: FilterNode) -> Iterator[tuple[str, Any]]:
    """Return the sub-attributes that a filter requires: those of comparisons with eq, joined by "and"."""
    parts = chosen.parts if isinstance(chosen, Conjunction) and not chosen.any_part else (chosen,)
    for part in parts:
        if isinstance(part, Comparison) and part.operator == "eq":
            known = attribute.part(part.path)
            if known is not None:
                yield known.name, resources.read_value(known, part.value)
