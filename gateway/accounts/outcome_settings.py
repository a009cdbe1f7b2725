"""The settings of an organization for outcomes: whether people are compared, and whether unusual keys are held."""

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import Organization
from gateway.control.version import Control
from gateway.errors import NotFound
from gateway.store.database import Database


class OutcomeSettings(Struct, frozen=True):
    """`compare_people`: members with the usage of others see outcomes by person, key and session. `hold_unusual`: a key
    that spends unusually much is held at the amount of its usual day."""

    compare_people: bool = False
    hold_unusual: bool = False


def find_settings(database: Database, organization_id: str) -> OutcomeSettings:
    """Return the settings. NotFound."""
    return database.read(lambda: _load(organization_id))


def change_settings(
    database: Database,
    control: Control,
    organization_id: str,
    *,
    actor: str,
    compare_people: bool | None = None,
    hold_unusual: bool | None = None,
) -> OutcomeSettings:
    """Change some of the settings; None leaves one as it is. NotFound."""
    given = {"compare_people": compare_people, "hold_unusual": hold_unusual}
    values = {name: value for name, value in given.items() if value is not None}

    def work(now: int) -> OutcomeSettings:
        _load(organization_id)
        if values:
            Organization.update(updated_at=now, **values).where(Organization.id == organization_id).execute()
            action = "organization.update_outcomes"
            audit.append(
                action, organization_id, actor=actor, at_us=now, organization_id=organization_id, detail=values
            )
        return _load(organization_id)

    return commit(database, control, work, confirm=False)


def _load(organization_id: str) -> OutcomeSettings:
    row = Organization.get_or_none(Organization.id == organization_id)
    if row is None:
        raise NotFound(f"There is no organization {organization_id}.")
    return OutcomeSettings(row.compare_people, row.hold_unusual)
