"""What a job keeps of its making, for whichever worker goes on with it: where it runs, what it may cost, whom to tell.

All of it is sealed at rest: a callback's secret is among it, and addresses that are secrets themselves.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, json

from gateway.accounts.vault import Vault
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Prices
from gateway.engine.custom_models import CustomModels
from gateway.errors import NotFound
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.usage import NOTHING, Usage
from gateway.neutral.videos import VideoFile
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Target

CUSTOM = "custom"
NOWHERE = "The provider that this video is made at is not configured any more."


class Task(Struct, frozen=True, kw_only=True):
    """`ident` is the provider's name for it, "" until one has it; with `provider`, `model` (the mapping's) and `region`
    it tells where, `credential` by which key, `source` whose that is, `bounded` that it has a spending limit.

    `reserved` is the most that it counts as, `prices` those of when it began, `discount_ppm` what is taken off them,
    `record` its usage row without what its end brings. `base_url` is the gateway as its caller sees it; `callback_url`
    "": nobody is told.
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
    reserved: Usage = NOTHING
    prices: Prices | None = None
    record: UsageRecord | None = None


class KeptFile(Struct, frozen=True):
    """Where a finished video is: a VideoFile without bytes. `asks`: they come along with the provider's word on its
    state, which is asked for again."""

    url: str = ""
    file: str = ""
    media_type: str = "video/mp4"
    asks: bool = False


TASK = json.Decoder(Task)
FILES = json.Decoder(tuple[KeptFile, ...])


class Sealed:
    """Reads and writes the sealed columns of a job. Unavailable where the installation's key does not fit."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def write(self, value: Task | Sequence[KeptFile] | str) -> str:
        return self._vault.seal(json.encode(value).decode())

    def task(self, sealed: str) -> Task:
        return TASK.decode(self._vault.open(sealed))

    def files(self, sealed: str) -> tuple[KeptFile, ...]:
        """() where there are none."""
        if sealed:
            return FILES.decode(self._vault.open(sealed))
        return ()

    def text(self, sealed: str) -> str:
        found: Any = json.decode(self._vault.open(sealed)) if sealed else ""
        return str(found)


def kept(files: Sequence[VideoFile]) -> list[KeptFile]:
    """What is written down of a finished video; bytes that came along are given back."""
    found = []
    for one in files:
        if one.data is not None:
            one.data.close()
        found.append(KeptFile(one.url, one.file, one.media_type, one.data is not None))
    return found


class Targets:
    """Where jobs run: their mapping in the catalogue in force, with their credential."""

    def __init__(
        self, catalogue: Callable[[], Catalogue], credentials: Credentials, custom_models: CustomModels
    ) -> None:
        self._catalogue = catalogue
        self._credentials = credentials
        self._custom_models = custom_models

    def find(self, organization_id: str, task: Task) -> Target:
        """The target of a job's calls. NotFound where mapping or credential are there no more; Unavailable."""
        if task.provider.partition(":")[0] == CUSTOM:
            found = self._custom(organization_id, task)
        else:
            found = self._listed(task)
        if found is not None:
            mapping, provider = found
            credential = self._credentials.again(mapping, organization_id, task.source, task.credential)
            if credential is not None:
                return self._credentials.target(mapping, provider, credential)
        raise NotFound(NOWHERE)

    def _listed(self, task: Task) -> Any:
        catalogue = self._catalogue()
        model = catalogue.models.get(task.model)
        provider = catalogue.providers.get(task.provider)
        if model is None or provider is None:
            return None
        fitting = (one for one in model.mappings if one.provider == task.provider and one.region == task.region)
        mapping = next(fitting, None)
        if mapping is None:
            return None
        return (mapping, provider)

    def _custom(self, organization_id: str, task: Task) -> Any:
        found = self._custom_models.again(organization_id, task.provider, task.model)
        if found is None:
            return None
        return (found.mapping, found.provider)
