"""The table of the settings that coding agents fetch."""

import peewee

from gateway.store.database import Base, TimeField


class ManagedSettings(Base):
    """Settings as JSON text; `scope_id` is the id of the organization or of a team of it."""

    scope_id = peewee.CharField(40, primary_key=True)
    organization_id = peewee.CharField(40, column_name="organization")
    settings = peewee.TextField()
    updated_at = TimeField()

    class Meta:
        table_name = "managed_settings"
