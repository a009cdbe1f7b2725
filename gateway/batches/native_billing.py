"""Bills lines that a provider's batch answered and that the gateway cannot deliver, for example to a key that was
deleted meanwhile."""

from msgspec import json

from gateway.batches.native_parts import NativeBatch
from gateway.batches.native_rows import ProviderBatchRow
from gateway.billing.context import Attempt
from gateway.billing.usage_rows import BASIS, extra_of, mode_of
from gateway.catalogue.prices import price_of
from gateway.engine.batch_lines import LineReply, tier_of
from gateway.errors import GatewayError
from gateway.metering.models import CAPPED, CREDITS, SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id, write_groups, write_row
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.protocol import Target
from gateway.store.journal import Row

UNDELIVERED = "undelivered"
WAIT_S = 10.0
OK = 200


def bill_unread(
    batch: NativeBatch,
    part: ProviderBatchRow,
    target: Target,
    reply: LineReply,
    hold: str,
    request_id: str,
    result: Row,
) -> None:
    """Record the usage of an answer together with the result of its line, which is an error. Unavailable."""
    settlements = batch.services.settlements
    job = batch.job()
    mapping = target.mapping
    usage, tier = _usage_of(batch, part, target, reply)
    mode = mode_of(target)
    ppm = 0
    if mode == CREDITS and settlements.discounts.any:
        ppm = settlements.discounts.fraction(job.organization, target.provider.id, mapping.model, part.created_at)
    charge, is_capped = price_of(usage, mapping, part.created_at, ppm, tier)
    attempt = Attempt(0, target, part.created_at, 0.0, status=OK, usage=usage, charge=charge, service_tier=tier)
    record = UsageRecord(
        at=part.created_at,
        posted_at=batch.clock.now_us(),
        cost_nusd=charge.total,
        input_nusd=charge.input,
        output_nusd=charge.output + charge.reasoning,
        cached_nusd=charge.cached_input,
        cache_write_nusd=charge.cache_write + charge.cache_write_1h,
        input=usage.input,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write + usage.cache_write_1h,
        output=usage.output,
        reasoning=usage.reasoning,
        duration_ms=0,
        ttft_ms=0,
        attempt=0,
        kind=SETTLEMENT,
        status=OK,
        mode=mode,
        basis=BASIS[usage.basis],
        flags=CAPPED if is_capped else 0,
        request=bytes.fromhex(request_id),
        organization=raw_id(job.organization),
        project=raw_id(job.project),
        api_key=raw_id(job.api_key),
        member=_member_of(batch, job.api_key),
        operation=part.operation,
        provider=target.provider.id,
        asked=mapping.model,
        served=mapping.model,
        source="",
        finish=UNDELIVERED,
        price_version=mapping.price_version,
        error=UNDELIVERED,
        extra=extra_of(usage, charge, attempt),
        discount_ppm=ppm or None,
        discount_nusd=charge.saved if ppm else None,
        tags=json.encode({"batch": job.id}).decode(),
    )
    fund = batch.funds.for_unread(hold, job.organization, settlements.spending) if charge.total else None
    rows = [write_row(record, fund.budget_set.teams if fund is not None else None)]
    if fund is not None:
        rows += write_groups(record.request, 0, fund.budget_set.groups)
        rows += fund.charge(charge.total, mode == CREDITS)
    statement, values = result
    settlements.journal.append(*rows, (statement, values)).wait(WAIT_S)


def _usage_of(batch: NativeBatch, part: ProviderBatchRow, target: Target, reply: LineReply) -> tuple[Usage, str]:
    """Return the usage of an answer and its service tier; no usage where the provider reports none that can be read."""
    try:
        read = batch.services.upstreams.read_usage(target, part.operation, reply)
    except GatewayError:
        return NO_USAGE, tier_of("")
    return read.usage, tier_of(read.service_tier)


def _member_of(batch: NativeBatch, key_id: str) -> bytes:
    """Return the raw id of the member who has the key, b"" for a deleted key."""
    found = batch.results.database.query_rows("SELECT member_id FROM api_key WHERE id = ?", (key_id,))
    return raw_id(found[0][0] or "") if found else b""
