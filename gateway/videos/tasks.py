"""The stored task of a job, for the worker that continues it: provider, cost bound and webhook.

Everything is sealed at rest, because it contains the callback's secret and URLs that grant access.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, json

from gateway.callers.vault import Vault
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Prices
from gateway.engine.custom_models import CustomModels
from gateway.errors import NotFound
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.neutral.videos import VideoFile
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Target

CUSTOM = "custom"
NOWHERE = "The provider of this video is no longer configured."


class Task(Struct, frozen=True, kw_only=True):
    """The task of a job. `ident` is the provider's id for it, "" until one has accepted it. `provider`, `model` (the
    mapping's) and `region` identify the target, `credential` the key, `source` its kind; `bounded`: the key has a
    spending limit.

    `reserved` is the most usage that it counts as, `prices` those in force when it began, `discount_ppm` the discount
    on them, `record` its usage row as far as it is known before the end. `base_url` is the gateway's URL as the caller
    sees it; `callback_url` "": no webhook.
    """

    base_url: str = ""
    callback_url: str = ""
    callback_secret: str = ""
    ident: str = ""
    provider: str = ""
    model: str = ""
    region: str = ""
    credential: str = ""
    source: str = ""
    bounded: bool = False
    discount_ppm: int = 0
    reserved: Usage = NO_USAGE
    prices: Prices | None = None
    record: UsageRecord | None = None


class KeptFile(Struct, frozen=True):
    """The location of a finished video: a VideoFile without bytes. `asks`: the bytes are part of the provider's status
    response, which must be requested again."""

    url: str = ""
    file: str = ""
    media_type: str = "video/mp4"
    asks: bool = False


TASK = json.Decoder(Task)
FILES = json.Decoder(tuple[KeptFile, ...])


class SealedColumns:
    """Reads and writes the sealed columns of a job. Unavailable when the installation's key does not match."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def write(self, value: Task | Sequence[KeptFile] | str) -> str:
        return self._vault.seal(json.encode(value).decode())

    def task(self, sealed: str) -> Task:
        return TASK.decode(self._vault.open(sealed))

    def files(self, sealed: str) -> tuple[KeptFile, ...]:
        """Return the files; () if there are none."""
        if sealed:
            return FILES.decode(self._vault.open(sealed))
        return ()

    def text(self, sealed: str) -> str:
        if not sealed:
            return ""
        return json.decode(self._vault.open(sealed), type=str)


def kept(files: Sequence[VideoFile]) -> list[KeptFile]:
    """Return the locations to store for a finished video; bytes that came along are released."""
    locations = []
    for file in files:
        if file.data is not None:
            file.data.close()
        locations.append(KeptFile(file.url, file.file, file.media_type, file.data is not None))
    return locations


class Targets:
    """Finds the targets of jobs: their mapping in the current catalogue, with their credential."""

    def __init__(
        self, catalogue: Callable[[], Catalogue], credentials: Credentials, custom_models: CustomModels
    ) -> None:
        self._catalogue = catalogue
        self._credentials = credentials
        self._custom_models = custom_models

    def find(self, organization_id: str, task: Task) -> Target:
        """Return the target of a job's calls. NotFound when mapping or credential no longer exist; Unavailable."""
        if task.provider.partition(":")[0] == CUSTOM:
            place = self._find_custom(organization_id, task)
        else:
            place = self._find_listed(task)
        if place is not None:
            mapping, provider = place
            credential = self._credentials.find_for_job(mapping, organization_id, task.source, task.credential)
            if credential is not None:
                return self._credentials.target(mapping, provider, credential)
        raise NotFound(NOWHERE)

    def _find_listed(self, task: Task) -> Any:
        catalogue = self._catalogue()
        model = catalogue.models.get(task.model)
        provider = catalogue.providers.get(task.provider)
        if model is None or provider is None:
            return None
        matches = (entry for entry in model.mappings if entry.provider == task.provider and entry.region == task.region)
        mapping = next(matches, None)
        if mapping is None:
            return None
        return (mapping, provider)

    def _find_custom(self, organization_id: str, task: Task) -> Any:
        custom = self._custom_models.find_for_job(organization_id, task.provider, task.model)
        if custom is None:
            return None
        return (custom.mapping, custom.provider)
