"""Settings of the playground that people saved by name, for themselves or for all members of a project."""

from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.callers.vault import Vault
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

MAX_PRESETS = 50  # of a person in a project
MAX_LISTED = 100  # a project may have those of thousands of people
MAX_NAME_LENGTH = 80
MAX_CONTENT_LENGTH = 40_000  # characters of the JSON
COLUMNS = "id, organization_id, project_id, user_id, name, content, shared"


class Preset(Struct, frozen=True):
    """A preset. `content` is JSON of the page, sealed in the store, which the server does not interpret. A `shared` one
    is seen by all members who may use the project."""

    id: str
    organization_id: str
    project_id: str
    user_id: str
    name: str
    content: str
    shared: bool


def save(
    database: Database, vault: Vault, place: tuple[str, str], user_id: str, name: str, content: str, shared: bool
) -> Preset:
    """Save a preset of a person in a `place` (organization, project); one of the same name is replaced. InvalidRequest
    (name, content, too many)."""
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"The name of a preset has 1 to {MAX_NAME_LENGTH} characters.", param="name")
    if len(content) > MAX_CONTENT_LENGTH:
        raise InvalidRequest(f"A preset has at most {MAX_CONTENT_LENGTH:,} characters.", param="content")
    preset = Preset(ids.new("preset"), *place, user_id, name, content, shared)
    sealed = vault.seal(content)

    def work() -> Preset:
        own = "project_id = ? AND user_id = ?"
        known = (preset.project_id, user_id)
        database.execute(f"DELETE FROM playground_preset WHERE {own} AND name = ?", (*known, name))
        counted = f"SELECT COUNT(*) FROM playground_preset WHERE {own}"
        if database.execute(counted, known).fetchone()[0] >= MAX_PRESETS:
            text = f"A person has at most {MAX_PRESETS} presets in a project. Delete one first."
            raise InvalidRequest(text, param="name")
        values = (preset.id, *place, user_id, name, sealed, shared, database.now_us())
        sql = f"INSERT INTO playground_preset ({COLUMNS}, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        database.execute(sql, values)
        return preset

    return database.write(work)


def remove(database: Database, preset: Preset) -> None:
    """Delete a preset; nothing happens if it was already deleted."""
    database.write(lambda: database.execute("DELETE FROM playground_preset WHERE id = ?", (preset.id,)))


def list_presets(database: Database, vault: Vault, project_id: str, user_id: str) -> list[Preset]:
    """Return the presets that a person sees in a project, by name: their own, and the newest of those that are shared,
    MAX_LISTED in total. Unavailable."""
    sql = (
        f"SELECT {COLUMNS} FROM playground_preset WHERE project_id = ? AND (user_id = ? OR shared) "
        "ORDER BY CASE WHEN user_id = ? THEN 0 ELSE 1 END, created_at DESC, id LIMIT ?"
    )
    rows = database.query_rows(sql, (project_id, user_id, user_id, MAX_LISTED))
    return sorted((_read(vault, row) for row in rows), key=lambda preset: (preset.name.lower(), preset.id))


def find(database: Database, vault: Vault, preset_id: str, project_id: str, user_id: str) -> Preset:
    """Return a preset that a person sees in a project. Raises NotFound."""
    row = database.query_row(f"SELECT {COLUMNS} FROM playground_preset WHERE id = ?", (preset_id,))
    preset = None if row is None else _read(vault, row)
    if preset is not None and preset.project_id == project_id and (preset.shared or preset.user_id == user_id):
        return preset
    raise NotFound("There is no such preset, or it is not shared with you.")


def _read(vault: Vault, row: Any) -> Preset:
    ident, organization_id, project_id, user_id, name, content, shared = row
    return Preset(ident, organization_id, project_id, user_id, name, vault.open(content), bool(shared))
