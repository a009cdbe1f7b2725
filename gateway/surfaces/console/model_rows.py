"""The models that the page lists: their entries in the API's model list, whether a caller can use them, and prices."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NamedTuple

from markupsafe import Markup

from gateway.callers.access import predicate
from gateway.callers.authentication import Caller
from gateway.catalogue import entries
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Model, Provider
from gateway.catalogue.lifecycle import has_ended
from gateway.neutral.units import UNITS
from gateway.runtime.threads import compute
from gateway.surfaces.openai.model_answers import ModelAnswer
from gateway.surfaces.openai.model_entries import Query, write_entries
from gateway.surfaces.web.listing import own_models
from gateway.worker.services import Services

MILLION = 1_000_000
EVERYTHING = Query(include_deactivated=True)
# Capability → its label.
CAPABILITIES = {
    "chat": "Chat",
    "vision": "Vision",
    "audio": "Audio input",
    "documents": "Documents",
    "tools": "Tools",
    "reasoning": "Reasoning",
    "json_output_schema": "JSON schema",
    "web_search": "Web search",
    "embeddings": "Embeddings",
    "images": "Image generation",
    "speech": "Text to speech",
    "transcriptions": "Transcription",
    "videos": "Video generation",
    "rerank": "Reranking",
    "moderations": "Moderation",
    "ocr": "OCR",
    "realtime": "Realtime",
    "decisions": "Decisions",
}
# Stages at which a mapping is refused; the reason of the mapping that came furthest describes a model.
ENDED, UNPRICED, OFF, RULED, KEYLESS, USABLE = range(6)
# The stages in a word or two.
STAGES = ("retired", "no price", "switched off", "not allowed", "no provider key", "yes")
PER_TOKEN = ("input", "output", "model")


class MappingUse(NamedTuple):
    """Whether a caller can use a mapping: the stage at which it was refused, or USABLE. `explain` returns the reason,
    which most pages show for few mappings."""

    mapping: entries.Mapping
    stage: int
    explain: Callable[[], str] = str

    @property
    def reason(self) -> str:
        return self.explain()


class ModelRow:
    """A model of the catalogue or of an organization's own providers, with what a caller can do with it."""

    def __init__(self, model: Model, entry: ModelAnswer, uses: list[MappingUse], names: Mapping[str, Provider]) -> None:
        self.model = model
        self._names = names
        self.entry = entry
        self.uses = uses

    @property
    def id(self) -> str:
        return self.model.id

    @cached_property
    def name(self) -> str:
        return self.model.name or self.model.id

    @cached_property
    def best(self) -> MappingUse:
        """Return the use of the mapping that came furthest."""
        return max(self.uses, key=lambda use: use.stage)

    @property
    def usable(self) -> bool:
        return self.best.stage == USABLE

    @property
    def ended(self) -> bool:
        return self.best.stage == ENDED

    @property
    def reason(self) -> str:
        return self.best.reason

    @property
    def state(self) -> str:
        return STAGES[self.best.stage]

    @cached_property
    def capabilities(self) -> list[str]:
        """Return the names of CAPABILITIES that a mapping of the model has."""
        mappings = self.model.mappings
        return [
            name
            for name in CAPABILITIES
            if any(getattr(mapping, name, False) or name in mapping.operations for mapping in mappings)
        ]

    @cached_property
    def providers(self) -> dict[str, str]:
        """Return the names of the model's providers by their ids."""
        return {mapping.provider: self._names[mapping.provider].name for mapping in self.model.mappings}

    @cached_property
    def input_price(self) -> Decimal | None:
        return read_price(self.entry.pricing, "prompt")

    @cached_property
    def output_price(self) -> Decimal | None:
        return read_price(self.entry.pricing, "completion")

    @cached_property
    def other_prices(self) -> list[tuple[str, str]]:
        """Return the prices besides those of text, each with its unit."""
        return list_prices(self.entry.pricing, ("prompt", "completion"))

    @property
    def listed(self) -> dict[str, Any]:
        """Return the row of the list, with the members that it is sorted and searched by."""
        return {
            "model": self,
            "name": self.name,
            "context": self.entry.context_length or None,
            "input": self.input_price,
            "output": self.output_price,
            "unusable": not self.usable,
            "text": " ".join(
                (self.id, self.model.family, *self.model.aliases, *self.providers, *self.providers.values())
            ),
        }


def list_rows(services: Services, caller: Caller | None) -> list[ModelRow]:
    """Return the organization's own models, then those of the catalogue, with what `caller` can use of them. Without a
    caller nothing is usable."""
    catalogue = services.routing.catalogue.current()
    judge = _UsabilityCheck(services, caller, catalogue)
    at_us = services.clock.now_us()
    holder = services.routing.catalogue
    # Building the entries of hundreds of models takes a tenth of a second, so they are built once a day, in a thread.
    key = ("console models", catalogue.version, day_of(at_us))
    written = holder.remember(key, partial(compute, _write, catalogue, catalogue.models.values(), at_us))
    rows = _judge_rows(catalogue, written, judge)
    if caller is None:
        return rows
    own = services.routing.custom_catalogue.of(caller).current()
    own_entries = _write(own, own_models(catalogue, own), at_us)
    return [*_judge_rows(own, own_entries, _UsabilityCheck(services, caller, own)), *rows]


def _write(catalogue: Catalogue, models: Iterable[Model], at_us: int) -> list[tuple[Model, ModelAnswer]]:
    known = {model.id: model for model in models}
    written = write_entries(catalogue, known.values(), EVERYTHING, at_us, None)
    return [(known[entry.id], entry) for entry in written]


def _judge_rows(
    catalogue: Catalogue, written: Iterable[tuple[Model, ModelAnswer]], judge: "_UsabilityCheck"
) -> list[ModelRow]:
    return [
        ModelRow(model, entry, [judge.use(mapping) for mapping in model.mappings], catalogue.providers)
        for model, entry in written
    ]


class _UsabilityCheck:
    """Decides for each mapping whether the caller can use it now."""

    def __init__(self, services: Services, caller: Caller | None, catalogue: Catalogue) -> None:
        at_us = services.clock.now_us()
        self._catalogue = catalogue
        self._caller = caller
        self._credentials = services.routing.credentials
        self._day = day_of(at_us)
        self._refuse = predicate(caller.rules if caller else (), at_us)
        self._usable = services.routing.credentials.usable(caller)

    def use(self, mapping: entries.Mapping) -> MappingUse:
        """Return the use of a mapping."""
        provider = self._catalogue.providers[mapping.provider]
        if has_ended(mapping, self._day):
            text = f"{provider.name} retired this model on {mapping.deactivated}."
            return MappingUse(mapping, ENDED, partial(str, text))
        if not mapping.priced:
            text = f"The catalogue has no price of {provider.name} for this model."
            return MappingUse(mapping, UNPRICED, partial(str, text))
        if provider.priority <= 0:
            return MappingUse(mapping, OFF, partial(str, f"The operator switched {provider.name} off."))
        if self._caller is None:
            return MappingUse(mapping, KEYLESS, partial(str, "You are not a member of any project."))
        reason = self._refuse(mapping, provider) if self._refuse else None
        if reason:
            return MappingUse(mapping, RULED, partial(str, f"Not allowed by the {reason}."))
        if not self._usable(mapping):
            return MappingUse(mapping, KEYLESS, partial(self._credentials.suggest, self._caller, [provider]))
        return MappingUse(mapping, USABLE)


def read_price(pricing: Mapping[str, Any], name: str) -> Decimal | None:
    """Return the price of a million tokens in US dollars; None without a price."""
    price = Decimal(pricing.get(name) or 0)
    if price:
        return price * MILLION
    return None


def list_prices(pricing: Mapping[str, Any], left_out: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return each price as text with its unit: "$2.50" and "million tokens in"."""
    shown = []
    for unit in UNITS:
        price = pricing.get(unit.price)
        if not price or unit.price in left_out:
            continue
        size = 1
        meaning = unit.meaning
        if unit.billed in PER_TOKEN:
            size = MILLION
            meaning = f"1M {meaning.replace('token', 'tokens', 1)}"
        if isinstance(price, dict):
            shown += [(write_price(Decimal(each) * size), f"{meaning} ({key})") for key, each in price.items()]
        elif Decimal(price):
            shown.append((write_price(Decimal(price) * size), meaning))
    return shown


def write_price(price: Decimal) -> str:
    """Return a price in US dollars with at least two decimal places and all of its digits."""
    text = f"{price.normalize():f}"
    whole, _, fraction = text.partition(".")
    return f"${int(whole):,}.{fraction:0<2}"


def show_price(price: Decimal | None) -> Markup:
    """Return the price of a million tokens, with the price of one in the title."""
    if price is None:
        return Markup('<span class="note dash">–</span>')
    one = f"{(price / MILLION).normalize():f}"
    return Markup('<span title="${} per token">{}</span>').format(one, write_price(price))
