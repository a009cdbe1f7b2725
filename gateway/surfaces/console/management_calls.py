"""Operations of the management API, run for a page: the page validates, permits and changes nothing itself.

A page is one more client of the management API. It names the row of the table, and gets what a program gets as JSON.
"""

from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson
from msgspec.structs import replace

from gateway.surfaces.http import Inbound
from gateway.surfaces.management.managed_operation import Action, ManagedOperation
from gateway.surfaces.management.table import OPERATIONS
from gateway.surfaces.visitor import Visitor

JSON = {"content-type": "application/json"}
ROWS = {f"{row.method} {row.path}": row for row in OPERATIONS if isinstance(row, ManagedOperation)}


class ManagementCall:
    """An operation of the management API that a page runs, named like "PATCH /keys/api/<key_id>"."""

    def __init__(self, name: str) -> None:
        action = ROWS[name].action
        assert action is not None
        self._action: Action[Any] = action

    def run(self, visitor: Visitor, inbound: Inbound, fields: dict[str, Any] | None = None, **path: str) -> Any:
        """Return the content of the answer as JSON values. `fields` are the members of the body or of the query, `path`
        the variables of the path. Raises the errors of the operation."""
        given = fields or {}
        query = urlencode(given)
        call = replace(inbound, params=path, query=query, headers=JSON, body=orjson.dumps(given))
        return orjson.loads(msgspec.json.encode(self._action.run(visitor, call)))
