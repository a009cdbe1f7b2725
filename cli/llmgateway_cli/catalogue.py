"""The models of the service, as `GET /v1/models` lists them for the user's key."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from llmgateway_cli.command_lines import suggestion
from llmgateway_cli.errors import CliError, HttpError

if TYPE_CHECKING:
    from llmgateway_cli.http_client import ApiClient

Entry = dict[str, Any]
MODELS = "/v1/models"
MODEL_CHARACTERS = "/:@"  # beside letters and digits: as they are in a path
# Capabilities that a member of a provider's entry states.
PROVIDER_FLAGS = ("tools", "reasoning", "vision", "streaming", "realtime")
# Capability → the member of a model's entry that says so.
MODEL_FLAGS = {"json": "json_output", "structured": "structured_outputs", "free": "free"}


class ModelFilter(NamedTuple):
    """Which models to show: those that have all the capabilities, one of the providers and all the texts."""

    capabilities: Sequence[str] = ()
    providers: Sequence[str] = ()
    texts: Sequence[str] = ()

    def shows(self, entry: Entry) -> bool:
        """Return whether a model matches every filter; upper and lower case are equal."""
        if not {name.lower() for name in self.capabilities} <= capabilities_of(entry):
            return False
        served = [name.lower() for name in providers_of(entry)]
        if self.providers and not any(provider.lower() in name for provider in self.providers for name in served):
            return False
        names = [name.lower() for name in names_of(entry)]
        return all(any(text.lower() in name for name in names) for text in self.texts)


def read_models(
    client: "ApiClient", *, key: str | None = None, mapped: bool = False, available: bool = False
) -> list[Entry]:
    """Return the entries of the catalogue. `mapped`: one entry for each provider of a model. `available`: only models
    that can be called now."""
    query = {name: "true" for name, given in (("mapped", mapped), ("available", available)) if given}
    answer = client.gateway("GET", MODELS, query=query, key=key)
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise CliError(
            "The service answered without a list of models.", "Check the address: --gateway-url must not end with /v1."
        )
    return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def names_of(entry: Entry) -> list[str]:
    """Return the id, the name and the aliases of a model."""
    names = [entry["id"], entry.get("name"), *(entry.get("aliases") or [])]
    return [name for name in names if isinstance(name, str)]


def providers_of(entry: Entry) -> list[str]:
    """Return the ids of the providers that serve a model, each once."""
    ids = [mapping.get("providerId") for mapping in entry.get("providers") or [] if isinstance(mapping, dict)]
    return list(dict.fromkeys(ident for ident in ids if isinstance(ident, str)))


def outputs_of(entry: Entry) -> list[str]:
    """Return the kinds of output of a model, text without other information."""
    architecture = entry.get("architecture") or {}
    return [str(output) for output in architecture.get("output_modalities") or ["text"]]


def capabilities_of(entry: Entry) -> set[str]:
    """Return what a model can do: the kinds of its output, and features such as tools and vision."""
    capabilities = set(outputs_of(entry))
    mappings = [mapping for mapping in entry.get("providers") or [] if isinstance(mapping, dict)]
    capabilities |= {name for name in PROVIDER_FLAGS if any(mapping.get(name) for mapping in mappings)}
    return capabilities | {name for name, member in MODEL_FLAGS.items() if entry.get(member)}


def known_capabilities(entries: Iterable[Entry]) -> list[str]:
    """Return the capabilities that at least one model has."""
    return sorted({name for entry in entries for name in capabilities_of(entry)})


def check_provider(entries: Iterable[Entry], named: str) -> None:
    """Raise CliError if no provider of a model has this text in its id."""
    known = sorted({provider for entry in entries for provider in providers_of(entry)})
    if not any(named.lower() in provider.lower() for provider in known):
        raise CliError(
            f"No model has a provider {named!r}.{suggestion(named, known)}", "`llmgateway models` lists the providers."
        )


def find_entry(entries: Sequence[Entry], model: str) -> Entry | None:
    """Return the entry that a model text means: an id, an alias, or `provider/model` with an optional region."""
    for entry in entries:
        if model == entry["id"] or model in (entry.get("aliases") or []):
            return entry
    provider, separator, rest = model.partition("/")
    name = rest.partition(":")[0]
    if separator:
        for entry in entries:
            if name in names_of(entry) and provider in providers_of(entry):
                return entry
    return None


def checked_entry(client: "ApiClient", model: str, *, key: str | None = None) -> Entry:
    """Return the entry of a model that can be called with the key. Raises CliError if the service has no such model;
    a model that nothing serves at present has an entry with `available` false."""
    entries = read_models(client, key=key, available=True)
    entry = find_entry(entries, model)
    if entry is not None:
        return entry
    hidden = _read_one(client, model, key)
    if hidden is not None:
        return {**hidden, "available": False}
    near = suggestion(model, [entry["id"] for entry in entries])
    raise CliError(f"The service has no model {model!r} for this key.{near}", "`llmgateway models` lists the models.")


def _read_one(client: "ApiClient", model: str, key: str | None) -> Entry | None:
    try:
        entry = client.gateway("GET", f"{MODELS}/{quote(model, safe=MODEL_CHARACTERS)}", key=key)
    except HttpError as error:
        if error.status in (400, 404, 405):
            return None
        raise
    return entry if isinstance(entry, dict) and "id" in entry else None
