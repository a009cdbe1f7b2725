"""The table of usage, and the meaning of its small numbers."""

import peewee

from gateway.store.database import Base, NanoField, TimeField

SETTLEMENT = 0  # kind: the attempt itself
LATE_CORRECTION = 1
CREDITS = 0  # mode: the organization's credits paid
BYOK = 1  # mode: the organization's own provider key paid
BASES = ("provider", "drained", "estimated", "interrupted")  # basis: the source of the counts
# flags; CAPPED: counts or cost exceeded the bounds of gateway/neutral/usage.py and gateway/money.py and were reduced
STREAMED = 1
CACHED = 2
RETRIED = 4
OVERRUN = 8
CAPPED = 16


class UsageEntry(Base):
    """One row per attempt. Ids are the 16 bytes after their prefix; `at` is when the attempt began, `posted_at` when it
    was recorded.

    Token counts are disjoint except for `reasoning` (part of `output`). `cost_nusd` is the sum of all components;
    components without a column are in `extra`, a JSON object {"units": {…}, "nusd": {…}, …} that is usually NULL.
    `discount_ppm` is the discount on the list price in parts per million, `discount_nusd` its amount, which is already
    deducted from `cost_nusd`. `storage_nusd` is the fee for storing the payload; it is not part of the cost. These
    three are NULL (no bytes) where they do not apply. `duration_ms` and `ttft_ms` (0: no content) are the attempt's;
    `status` is the upstream's. `session` is the session of an agent that made the request, `tags` the caller's metadata
    as a JSON object of strings. `decision` is the request that stored the routing decision; NULL: this one. `teams` are
    the teams with limits that paid the cost, 16 bytes each, in ascending order.
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
    session = peewee.CharField(64, null=True)
    tags = peewee.TextField(null=True)
    decision = peewee.BlobField(null=True)
    teams = peewee.BlobField(null=True)

    class Meta:
        table_name = "usage"
        primary_key = peewee.CompositeKey("request", "attempt", "kind")


class GroupUsage(Base):
    """A usage row with a cost, and a session, a run or a row of `limits` that it was charged to; deleted with the usage
    row. Rows of earlier releases also name teams."""

    request = peewee.BlobField()
    attempt = peewee.SmallIntegerField()
    kind = peewee.SmallIntegerField()
    team = peewee.BlobField(index=True)

    class Meta:
        table_name = "group_usage"
        primary_key = peewee.CompositeKey("request", "attempt", "kind", "team")
