"""The table of usage, and what its small numbers mean."""

import peewee

from gateway.store.database import Base, NanoField, TimeField

SETTLEMENT, LATE = 0, 1  # kind: the attempt itself; what became known of it afterwards
CREDITS, BYOK = 0, 1  # mode: the organization's credits paid, or its own provider key did
BASES = ("provider", "drained", "estimated", "interrupted")  # basis: where the counts come from
# flags; CAPPED: counts or cost passed the bounds of gateway/neutral/usage.py and gateway/money.py and were cut to them
STREAMED = 1
CACHED = 2
RETRIED = 4
OVERRUN = 8
CAPPED = 16


class UsageEntry(Base):
    """One row an attempt. Ids are the 16 bytes behind their prefix; `at` is when the attempt began, `posted_at` when
    it was recorded. Token counts are disjoint but for `reasoning` (part of `output`). `cost_nusd` is the sum of all
    components; those without a column are in `extra`, a JSON object {"units": {…}, "nusd": {…}, …} that is usually
    NULL. `discount_ppm` is the fraction that was taken off the list price, in parts per million, and `discount_nusd`
    what that saved: `cost_nusd` is what is left. `storage_nusd`, beside the cost, is the fee for keeping the payload.
    These three are NULL (no bytes) where there is none. `duration_ms` and `ttft_ms` (0: no content came) are the
    attempt's; `status` is the upstream's.
    """

    at = TimeField()
    posted_at = TimeField(index=True)
    cost_nusd = NanoField()
    input_nusd = NanoField()
    output_nusd = NanoField()
    cached_nusd = NanoField()
    cache_write_nusd = NanoField()
    input = peewee.IntegerField()
    cache_read = peewee.IntegerField()
    cache_write = peewee.IntegerField()
    output = peewee.IntegerField()
    reasoning = peewee.IntegerField()
    duration_ms = peewee.IntegerField()
    ttft_ms = peewee.IntegerField()
    attempt = peewee.SmallIntegerField()
    kind = peewee.SmallIntegerField()
    status = peewee.SmallIntegerField()
    mode = peewee.SmallIntegerField()
    basis = peewee.SmallIntegerField()
    flags = peewee.SmallIntegerField()
    request = peewee.BlobField()
    organization = peewee.BlobField()
    project = peewee.BlobField()
    api_key = peewee.BlobField()
    member = peewee.BlobField()
    operation = peewee.CharField(24)
    provider = peewee.CharField(80)
    asked = peewee.CharField(255)
    served = peewee.CharField(255)
    source = peewee.CharField(255)
    finish = peewee.CharField(24)
    price_version = peewee.CharField(40)
    error = peewee.CharField(64, null=True)
    label = peewee.CharField(64, null=True)
    extra = peewee.TextField(null=True)
    storage_nusd = NanoField(null=True)
    discount_ppm = peewee.IntegerField(null=True)
    discount_nusd = NanoField(null=True)

    class Meta:
        table_name = "usage"
        primary_key = peewee.CompositeKey("request", "attempt", "kind")


class TeamUsage(Base):
    """A usage row that cost something and a team whose budgets it was taken from; a row that goes takes these along."""

    request = peewee.BlobField()
    attempt = peewee.SmallIntegerField()
    kind = peewee.SmallIntegerField()
    team = peewee.BlobField(index=True)

    class Meta:
        table_name = "team_usage"
        primary_key = peewee.CompositeKey("request", "attempt", "kind", "team")


MODELS = (UsageEntry, TeamUsage)
