"""Selects the keys that a caller may use at a provider, and builds a target for each."""

import hashlib
import hmac
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Mapping as Environment
from contextlib import suppress

from gateway.callers.authentication import Caller
from gateway.callers.credential_sources import API_KEYS, CREDITS, OWN_SOURCE, PLATFORM_SOURCE
from gateway.callers.stored_keys import StoredCredential as StoredKey
from gateway.callers.stored_keys import StoredKeys
from gateway.catalogue.base_urls import address_of, join_base
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.environment_credentials import (
    WORKLOAD_IDENTITY,
    base_url_for,
    credentials_for,
    missing_variables,
    settings_for,
)
from gateway.catalogue.unlisted_entries import OWN_KEYS, UNLISTED
from gateway.configuration.file import SettingsError, stamp_files
from gateway.providers.identities.upstream_identity import UpstreamIdentities
from gateway.providers.protocol import Credential, Target

CUSTOM = "custom"
MAX_TARGETS = 20_000
MAX_ADVISED = 3  # providers that an error message gives advice for
LISTED = "GET /v1/models?available=true lists the models that can be called now."
KEYLESS = Credential(secret="", source=PLATFORM_SOURCE)


class Credentials:
    """The platform's keys and the keys that organizations stored.

    The platform's keys are read from the environment once per catalogue, and again when a file that a NAME_FILE names
    has changed.
    """

    def __init__(
        self,
        catalogue: Callable[[], Catalogue],
        environment: Environment[str, str],
        provider_keys: StoredKeys,
        fingerprint_key: bytes,
        identities: UpstreamIdentities,
    ) -> None:
        self._catalogue = catalogue
        self._environment = environment
        self._provider_keys = provider_keys
        self._fingerprint_key = fingerprint_key
        self._identities = identities
        self._version = ""
        self._stamps: tuple[Hashable, ...] = ()
        self._renewals = 0
        self._platform: dict[str, tuple[Credential, ...]] = {}
        self._places: dict[str, tuple[str, dict[str, str]]] = {}
        self._targets: dict[tuple[str, str], Target] = {}
        self._moved: dict[str, bool] = {}

    def usable(self, caller: Caller | None) -> Callable[[Mapping], tuple[Credential, ...]]:
        """Return a function that lists the caller's credentials for a mapping, in the order in which to try them. It
        reads neither the store nor later changes, so a thread may call it. Without a caller, it lists the platform's
        credentials.

        A custom provider (its id is "custom" or begins with "custom:") has only keys of the organization. They are sent
        to the organization's address, so their outcomes are unrelated to another organization's provider of the same
        name.
        """
        platform = self._current()
        if caller is None or caller.mode == CREDITS:
            return lambda mapping: platform.get(mapping.provider, ())
        hybrid = caller.mode != API_KEYS
        own_keys = self._provider_keys.all_keys(caller.organization_id)

        def find(mapping: Mapping) -> tuple[Credential, ...]:
            own = self._own(own_keys.get(mapping.provider, ()), mapping)
            if hybrid and mapping.extra.get(UNLISTED) != OWN_KEYS:
                return own + platform.get(mapping.provider, ())
            return own

        return find

    def scope_of(self, caller: Caller | None) -> Hashable:
        """Return a value that is equal for callers with the same credentials for every mapping of one catalogue."""
        if caller is None or caller.mode == CREDITS:
            return (self._renewals,)
        own_keys = self._provider_keys.all_keys(caller.organization_id)
        return (self._renewals, caller.mode == API_KEYS, *(key.info for keys in own_keys.values() for key in keys))

    def target(self, mapping: Mapping, provider: Provider, credential: Credential) -> Target:
        """Return the target of a request with this credential. Targets of the platform's keys are cached."""
        if credential.source == OWN_SOURCE:
            return self._make_target(mapping, provider, credential)
        name = (mapping.key, credential.ident)
        target = self._targets.get(name)
        if target is None or target.mapping is not mapping:
            # Callers choose the names of models that the catalogue does not list.
            if len(self._targets) >= MAX_TARGETS:
                self._targets.clear()
            target = self._targets[name] = self._make_target(mapping, provider, credential)
        return target

    def _make_target(self, mapping: Mapping, provider: Provider, credential: Credential) -> Target:
        base_url, settings = ("", {}) if _is_custom(provider.id) else self._place(provider, mapping)
        own = credential.source == OWN_SOURCE
        if credential.identity is not None:
            settings = credential.identity.complete(settings)
        if own:
            base_url = credential.base_url or (mapping.address if _is_custom(provider.id) else "")
        return Target(
            provider=provider,
            mapping=mapping,
            credential=credential,
            address=address_of(provider, base_url, settings, mapping.address).rstrip("/"),
            settings=settings,
            trusted=not own,
        )

    def find_for_job(self, mapping: Mapping, organization_id: str, source: str, ident: str) -> Credential | None:
        """Return the credential that started a job. If it was deleted, return another credential of the same owner for
        the same mapping, which most likely belongs to the same account. None when there is none."""
        if source == OWN_SOURCE:
            keys = self._provider_keys.keys_for(organization_id, mapping.provider)
            credentials = self._own(keys, mapping)
        else:
            credentials = self._current().get(mapping.provider, ())
        for credential in credentials:
            if credential.ident == ident:
                return credential
        if credentials:
            return credentials[0]
        return None

    def platform(self) -> dict[str, tuple[Credential, ...]]:
        """Return the platform's credentials by provider."""
        return self._current()

    def identities(self) -> tuple[tuple[str, str, int, str], ...]:
        """Return the providers with a workload identity: source, expiry (µs, 0: no valid token) and last failure."""
        return tuple(
            (provider, *key.identity.describe())
            for provider, keys in self._current().items()
            for key in keys
            if key.identity is not None
        )

    def has_platform(self, provider_id: str) -> bool:
        return bool(self._current().get(provider_id))

    def advise(self, caller: Caller, providers: Sequence[Provider]) -> str:
        """Explain how the caller can get a credential for one of `providers`, and name the list of usable
        models."""
        return f"{self.suggest(caller, providers)} {LISTED}"

    def suggest(self, caller: Caller, providers: Sequence[Provider]) -> str:
        """Explain how the caller can get a credential for one of `providers`: an environment variable for the
        platform's key, a provider key of the organization, or either, depending on the project's mode."""
        with_own_keys = [
            provider for provider in providers if self._provider_keys.keys_for(caller.organization_id, provider.id)
        ]
        if caller.mode != CREDITS and with_own_keys:
            names = ", ".join(provider.id for provider in with_own_keys[:MAX_ADVISED])
            return f"The organization's own keys for {names} are bound to other models or another region."
        add = f"add a provider key for {' or '.join(provider.id for provider in providers[:MAX_ADVISED])}"
        if caller.mode == API_KEYS:
            return f"This project uses the organization's own keys only: {add}, or set its mode to hybrid."
        platform = [provider for provider in providers if not _is_custom(provider.id)]
        variables = [text for provider in platform if (text := missing_variables(provider, self._environment))]
        options = []
        if variables:
            options.append(f"set {', or '.join(variables[:MAX_ADVISED])} in the gateway's environment")
        if caller.mode != CREDITS:
            options.append(add)
        elif with_own_keys:
            options.append("set the project's mode to hybrid to use the organization's own keys")
        text = ", or ".join(options)
        return f"{text[:1].upper()}{text[1:]}."

    def _current(self) -> dict[str, tuple[Credential, ...]]:
        catalogue = self._catalogue()
        if catalogue.version != self._version:
            self._stamps = stamp_files(self._environment)
            self._use(self._read_platform(catalogue))
            self._version = catalogue.version
        return self._platform

    def refresh(self) -> bool:
        """Read the platform's keys again if a file that holds one has changed; return whether any key did.

        SettingsError: a file cannot be read; the known keys stay in use until it can.
        """
        stamps = stamp_files(self._environment)
        if stamps == self._stamps or not self._version:
            return False
        platform = self._read_platform(self._catalogue())
        self._stamps = stamps
        if platform == self._platform:
            return False
        self._use(platform)
        self._renewals += 1
        return True

    def refused(self, target: Target) -> None:
        """Look for a new key after the provider refused the platform's, whose file may have been replaced."""
        if target.trusted:
            with suppress(SettingsError):  # the recurring job reports it
                self.refresh()

    def _read_platform(self, catalogue: Catalogue) -> dict[str, tuple[Credential, ...]]:
        return {provider.id: keys for provider in catalogue.providers.values() if (keys := self._read(provider))}

    def _use(self, platform: dict[str, tuple[Credential, ...]]) -> None:
        self._platform = platform
        self._places = {}
        self._targets = {}
        self._moved = {}

    def _read(self, provider: Provider) -> tuple[Credential, ...]:
        secrets = credentials_for(provider, self._environment)
        keys = [self._read_secret(provider, secret) for secret in secrets]
        usable = tuple(key for key in keys if not provider.settings or self._has_address(provider, key))
        if usable:
            return usable
        if secrets or provider.key_required:
            return ()
        reachable = provider.protocol == "sandbox" or provider.address or base_url_for(provider, self._environment)
        if reachable:
            return (KEYLESS,)
        return ()

    def _read_secret(self, provider: Provider, secret: str) -> Credential:
        """Return the credential for a value in the environment: a key, or a workload identity."""
        if secret != WORKLOAD_IDENTITY:
            return Credential(secret, PLATFORM_SOURCE, self._fingerprint(secret))
        identity = self._identities.find(provider.identity, settings_for(provider, self._environment))
        return Credential("", PLATFORM_SOURCE, self._fingerprint(f"{secret} {identity.name}"), identity=identity)

    def _has_address(self, provider: Provider, key: Credential) -> bool:
        """Whether all settings for the provider's address are present, or one of its mappings has an address."""
        base_url = base_url_for(provider, self._environment)
        settings = settings_for(provider, self._environment)
        if key.identity is not None:
            settings = key.identity.complete(settings)
        if address_of(provider, join_base(provider, base_url), settings):
            return True
        mappings = (mapping for model in self._catalogue().models.values() for mapping in model.mappings)
        mine = (mapping for mapping in mappings if mapping.provider == provider.id)
        for mapping in mine:
            place = {**settings, "region": mapping.region} if mapping.region else settings
            if address_of(provider, "", place, mapping.address):
                return True
        return False

    def _place(self, provider: Provider, mapping: Mapping) -> tuple[str, dict[str, str]]:
        """Return the operator's base URL ("": none) and the settings of a mapping."""
        place = self._places.get(provider.id)
        if place is None:
            place = (base_url_for(provider, self._environment), settings_for(provider, self._environment))
            self._places[provider.id] = place
        base_url, settings = place
        return base_url, {**settings, "region": mapping.region} if mapping.region else settings

    def _own(self, keys: tuple[StoredKey, ...], mapping: Mapping) -> tuple[Credential, ...]:
        if not keys:
            return ()
        custom = _is_custom(mapping.provider)
        usual = mapping.address if custom else ""
        moved = custom or self._is_moved(mapping)
        return tuple(_read_own(key, usual, moved) for key in keys if _fits(key, mapping))

    def _is_moved(self, mapping: Mapping) -> bool:
        """Whether the operator sends the platform's keys to another address than the provider's, which receives the
        keys of organizations."""
        moved = self._moved.get(mapping.key)
        provider = self._catalogue().provider(mapping.provider)
        if moved is None and provider is not None:
            base_url, settings = self._place(provider, mapping)
            usual, own = (address_of(provider, base, settings, mapping.address) for base in (base_url, ""))
            moved = self._moved[mapping.key] = usual != own
        return bool(moved)

    def _fingerprint(self, secret: str) -> str:
        return hmac.new(self._fingerprint_key, secret.encode(), hashlib.sha256).hexdigest()[:12]


def _fits(key: StoredKey, mapping: Mapping) -> bool:
    info = key.info
    if info.allowed_models and mapping.model not in info.allowed_models:
        return False
    return not (info.region and mapping.region) or info.region == mapping.region


def _is_custom(provider_id: str) -> bool:
    return provider_id.partition(":")[0] == CUSTOM


def _read_own(key: StoredKey, usual: str, moved: bool) -> Credential:
    info = key.info
    bounded = info.max_spend_nusd is not None
    base_url = info.base_url or usual
    return Credential(key.secret, OWN_SOURCE, info.id, info.label, base_url, bounded, moved or bool(base_url))
