"""Changes of groups: the members that a request states, and PATCH in the forms that Entra ID and Okta send."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gateway.accounts.provisioning.provisioned_groups import GroupChange
from gateway.errors import InvalidRequest
from gateway.surfaces.scim import values
from gateway.surfaces.scim.attributes import COMMON, GROUP, GROUPS_TYPE, MEMBERS, resolve
from gateway.surfaces.scim.filters import Comparison, FilterNode, PatchPath, matches_value, parse_path
from gateway.surfaces.scim.patches import (
    ADD,
    REMOVE,
    PatchOperation,
)

MAX_MEMBERS = 10_000  # of one request
MAX_MATCHES = 200_000  # members that the filters of one request are compared with
MAX_ID_LENGTH = 80
MAX_NAME_LENGTH = 255
DISPLAY_NAME = GROUP.by_name["displayname"]
EXTERNAL_ID = COMMON["externalid"]


class GroupDraft:
    """The changes that the operations of a request make to a group. `load` returns the current members; it is called
    only where a change depends on them, and then `depends` is true."""

    def __init__(self, load: Callable[[], Sequence[str]]) -> None:
        self._load = load
        self._current: Sequence[str] | None = None
        self.depends = False
        self.name: str | None = None
        self.external_id: str | None = None
        self._replaced = False
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._stated = 0
        self._compared = 0

    def assign(self, given: Mapping[str, Any], operation: str) -> None:
        """Take the attributes of a body, or of an operation without a path. Unknown and read-only ones are ignored."""
        for name, value in given.items():
            key = name.rpartition(":")[2].lower() if name.lower().startswith("urn:") else name.lower()
            if key == "displayname":
                self._set_name(value)
            elif key == "externalid":
                self._set_external_id(value)
            elif key == "members":
                self._set_members(operation, value)

    def apply(self, operation: PatchOperation) -> None:
        """Apply an operation of PATCH. Raises InvalidRequest."""
        if not operation.path:
            if not isinstance(operation.value, dict):
                text = "Without a path, the value must be an object with the attributes."
                raise InvalidRequest(text, param="value", code="invalid_value")
            self.assign(operation.value, operation.name)
            return
        parsed = parse_path(operation.path)
        path = resolve(GROUPS_TYPE, parsed.attribute)
        attribute = path.attribute
        if attribute is MEMBERS:
            self._apply_members(operation, parsed, path.part is not None)
        elif attribute is DISPLAY_NAME:
            self._set_name(None if operation.name == REMOVE else operation.value)
        elif attribute is EXTERNAL_ID:
            self._set_external_id(None if operation.name == REMOVE else operation.value)
        elif attribute is None:
            raise InvalidRequest(f"There is no attribute {parsed.attribute[:80]}.", param="path", code="invalid_path")
        elif attribute is not COMMON["schemas"]:
            raise InvalidRequest(f"{parsed.attribute[:80]} is read-only.", param="path", code="read_only")

    def change(self) -> GroupChange:
        """Return the change that all operations make together."""
        removed = tuple(self._removed)
        if self._replaced:
            removed = tuple(member_id for member_id in self._members() if member_id not in self._added)
        return GroupChange(self.name, self.external_id, tuple(self._added), removed)

    def _apply_members(self, operation: PatchOperation, parsed: PatchPath, has_part: bool) -> None:
        has_part = has_part or bool(parsed.part)
        if parsed.chosen is None and not has_part:
            self._set_members(operation.name, operation.value)
        elif operation.name != REMOVE or has_part or parsed.chosen is None:
            text = "Members are added by their ids, and removed by their ids or by a filter."
            raise InvalidRequest(text, param="path", code="invalid_path")
        else:
            for member_id in self._choose(parsed.chosen):
                self._drop(member_id)

    def _set_members(self, operation: str, value: Any) -> None:
        if operation == REMOVE:
            if value is None or value == []:
                self._replace({})
            else:
                for member_id in self._read_members(value):
                    self._drop(member_id)
        elif operation == ADD:
            for member_id in self._read_members(value):
                self._added[member_id] = None
                self._removed.pop(member_id, None)
        else:
            self._replace(dict.fromkeys(self._read_members(value)))

    def _replace(self, members: dict[str, None]) -> None:
        self._replaced = True
        self._added = members
        self._removed = {}

    def _drop(self, member_id: str) -> None:
        self._added.pop(member_id, None)
        self._removed[member_id] = None

    def _read_members(self, value: Any) -> list[str]:
        given = value if isinstance(value, list) else [value]
        if value is None:
            given = []
        self._stated += len(given)
        if self._stated > MAX_MEMBERS:
            text = f"A request states at most {MAX_MEMBERS:,} members; send the others in further requests."
            raise InvalidRequest(text, param="members", code="too_many")
        return [_read_member(member) for member in given]

    def _choose(self, chosen: FilterNode) -> Collection[str]:
        """Return the members that fulfil a filter."""
        if isinstance(chosen, Comparison) and (chosen.path.lower(), chosen.operator) == ("value", "eq"):
            return [chosen.value] if isinstance(chosen.value, str) else []
        members = self._members() if not self._replaced else ()
        candidates = [member for member in dict.fromkeys((*members, *self._added)) if member not in self._removed]
        self._compared += len(candidates)
        if self._compared > MAX_MATCHES:
            text = "The filters of this request are compared with too many members; name the members by their ids."
            raise InvalidRequest(text, param="path", code="too_many")
        found = [member for member in candidates if matches_value(chosen, MEMBERS, {"value": member, "type": "User"})]
        if not found:
            raise InvalidRequest("No member fulfils the filter.", param="path", code="no_target")
        return found

    def _members(self) -> Sequence[str]:
        self.depends = True
        if self._current is None:
            self._current = self._load()
        return self._current

    def _set_name(self, value: Any) -> None:
        if not isinstance(value, str) or not value.strip():
            raise values.refuse(DISPLAY_NAME, "it is required")
        values.check_text(DISPLAY_NAME, value, MAX_NAME_LENGTH)
        self.name = value.strip()

    def _set_external_id(self, value: Any) -> None:
        text = values.read_value(EXTERNAL_ID, value) or ""
        values.check_text(EXTERNAL_ID, text, MAX_NAME_LENGTH)
        self.external_id = text


def _read_member(given: Any) -> str:
    member_id = given
    if isinstance(given, dict):
        member_id = given.get("value")
        if str(given.get("type") or "User").lower() != "user":
            raise values.refuse(MEMBERS, "groups within groups are not supported")
    if not isinstance(member_id, str) or not 1 <= len(member_id) <= MAX_ID_LENGTH or "\0" in member_id:
        raise values.refuse(MEMBERS, "the id of a user is expected as value")
    return member_id
