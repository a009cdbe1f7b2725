"""The options of batches that all dialects share: metadata, callback, and whether a batch runs up to a limit."""

from typing import Annotated, Any

from msgspec import Meta

from gateway.batches.batch_table import DIRECT, BatchTask
from gateway.billing.batch_reservation import AUTO, NATIVE
from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.web.http import HeaderParameter, Inbound
from gateway.transport.addresses import check_spelling, read_receiver
from gateway.worker.services import Services

# Options in headers that apply to each line.
PREFERENCE_HEADERS = (MODELS_HEADER, PROVIDER_HEADER, "x-no-fallback")
UP_TO_LIMIT = "x-llmgateway-up-to-limit"
UP_TO_LIMIT_KEY = "up_to_limit"  # the same in the metadata of a batch
MAX_METADATA, MAX_KEY, MAX_VALUE = 16, 64, 512  # OpenAI API reference, batches
Metadata = Annotated[dict[str, str], Meta(max_length=MAX_METADATA)] | None
CallbackUrl = Annotated[str, Meta(max_length=2000)] | None
CallbackSecret = Annotated[str, Meta(min_length=1, max_length=512)] | None
SENDING = "x-llmgateway-batch"
SENDING_KEY = "batch"
SENDINGS = (AUTO, NATIVE, DIRECT)
SENDING_HEADER = HeaderParameter(
    SENDING,
    "How the requests are sent: auto (to the batch APIs of providers, at their prices, where they have one, and as "
    "requests otherwise), native (to batch APIs alone) or direct (as requests, at the list price).",
    words=SENDINGS,
)
UP_TO_LIMIT_HEADER = HeaderParameter(
    UP_TO_LIMIT,
    "With true, nothing is reserved for the whole batch, and its requests run until a limit refuses them.",
    words=("true", "false"),
)


def task_of(
    services: Services,
    inbound: Inbound,
    *,
    metadata: dict[str, str] | None,
    callback: tuple[str | None, str | None],
    **more: Any,
) -> BatchTask:
    """Return the task of a batch. Raises InvalidRequest."""
    for key, value in (metadata or {}).items():
        if len(key) > MAX_KEY or len(value) > MAX_VALUE:
            raise invalid("metadata", f"keys have at most {MAX_KEY} characters and values {MAX_VALUE}")
    url, secret = callback
    if secret and not url:
        raise invalid("callback_secret", "it requires callback_url")
    if url:
        url = read_receiver(url, "callback_url")
        if not services.settings.security.allow_private_upstreams:
            check_spelling(url, "callback_url")
    return BatchTask(
        sending=_sending_of(inbound, metadata or {}),
        metadata=metadata,
        up_to_limit=_runs_up_to_limit(inbound, metadata or {}),
        callback_url=url or "",
        callback_secret=secret or "",
        base_url=inbound.base_url,
        address=inbound.peer,
        headers={name: value for name in PREFERENCE_HEADERS if (value := inbound.header(name))},
        **more,
    )


def _sending_of(inbound: Inbound, metadata: dict[str, str]) -> str:
    """Return how the lines are sent. InvalidRequest for an unknown word in the header; metadata may mean anything."""
    text = inbound.header(SENDING).lower()
    if text and text not in SENDINGS:
        raise invalid(SENDING, f"it must be one of {', '.join(SENDINGS)}")
    known = metadata.get(SENDING_KEY, "")
    return text or (known if known in SENDINGS else AUTO)


def _runs_up_to_limit(inbound: Inbound, metadata: dict[str, str]) -> bool:
    text = inbound.header(UP_TO_LIMIT) or metadata.get(UP_TO_LIMIT_KEY, "")
    return text.lower() == "true"
