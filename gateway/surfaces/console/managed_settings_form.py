"""The section of a page for the managed settings of Claude Code, of an organization and of a team."""

import json
from collections.abc import Callable
from typing import Any

from gateway.errors import InvalidRequest
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall

FIELD = "managed_settings"
ORGANIZATION = "/orgs/<organization_id>/managed-settings"
TEAM = "/orgs/<organization_id>/teams/<team_id>/managed-settings"
# A function that returns the variables of the path.
PathOf = Callable[[PageCall], dict[str, Any]]


class ManagedSettingsForm:
    """The form of one place: its text, and the actions that save and remove the settings."""

    def __init__(self, path: str, path_of: PathOf) -> None:
        self._find = ManagementCall(f"GET {path}")
        self._replace = ManagementCall(f"PUT {path}")
        self._remove = ManagementCall(f"DELETE {path}")
        self._path_of = path_of
        self.actions: dict[str, PageAction] = {FIELD: self._save, f"remove_{FIELD}": self._delete}

    def text(self, call: PageCall) -> str:
        """Return the settings as indented JSON, "" without any."""
        settings = call.run(self._find, **self._path_of(call))["settings"]
        if settings is None:
            return ""
        return json.dumps(settings, indent=2, ensure_ascii=False)

    def _save(self, call: PageCall) -> str:
        try:
            settings = json.loads(call.form.get(FIELD, ""))
        except (ValueError, RecursionError):
            raise InvalidRequest("The settings are not valid JSON.") from None
        call.run(self._replace, {"settings": settings}, **self._path_of(call))
        return "The settings were saved. Claude Code applies them at its next start, or within an hour."

    def _delete(self, call: PageCall) -> str:
        call.run(self._remove, **self._path_of(call))
        return "The settings were removed."
