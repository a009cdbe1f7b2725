"""Starts gateways in a third of the time: results for the same files and keys are cached in this process.

The suite starts hundreds of gateways in a process, the product starts one per worker. The decisions of a start are
unchanged.
"""

import copy
import secrets
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.catalogue import loader
from gateway.configuration.setting_sources import SettingsReader
from gateway.configuration.settings import CONFIG
from gateway.store import installation_identity

# The secrets of installations that get them from the environment, as those on PostgreSQL do.
SECRETS = {"GATEWAY_API_KEY_HASH_SECRET": "hash-secret-of-tests", "GATEWAY_ENCRYPTION_KEY": "encryption-key-of-tests"}


def make_cheap() -> None:
    """Cache the results of starts in this process."""
    _keep_layers("read_snapshot", loader.FOLDER / loader.SNAPSHOT)
    _keep_layers("read_folder", loader.FOLDER)
    _keep_models()
    _keep_defaults()
    # All installations of this process have the same secrets, so that their slow hashes are computed once.
    installation_identity.secrets = SimpleNamespace(  # type: ignore[assignment]
        token_hex=cache(secrets.token_hex), token_urlsafe=cache(secrets.token_urlsafe)
    )
    installation_identity._make_encryption_key = cache(installation_identity._make_encryption_key)
    installation_identity._fingerprint = cache(installation_identity._fingerprint)


def know_secrets() -> None:
    """Compute the secrets now, for processes that are forked from this one."""
    salt = installation_identity.secrets.token_hex(16)
    made = installation_identity.secrets.token_urlsafe(32), installation_identity._make_encryption_key()
    for key in (*made, *SECRETS.values()):
        installation_identity._fingerprint(key, salt)


def know_all() -> None:
    """Fill all caches now, for processes that are forked from this one."""
    loader.load()
    know_secrets()


def _keep_layers(name: str, own: Path) -> None:
    """Cache the product's layers of the catalogue, which no test changes in place."""
    read = getattr(loader, name)
    kept = cache(read)

    def read_once(path: Path) -> Any:
        return kept(path) if path == own else read(path)

    setattr(loader, name, read_once)


def _keep_defaults() -> None:
    """Cache the product's default settings, which no test changes in place; each start gets a copy."""
    load, own = SettingsReader._load, CONFIG
    kept: dict[Path, dict[str, Any]] = {}

    def load_once(reader: SettingsReader, path: Path) -> dict[str, Any]:
        if path.parent != own:
            return load(reader, path)
        if path not in kept:
            kept[path] = load(reader, path)
        return copy.deepcopy(kept[path])

    SettingsReader._load = load_once  # type: ignore[method-assign]


def _keep_models() -> None:
    """Cache the models of the product's two layers without an operator's layer."""
    overlay, build_providers, build_models = loader.overlay, loader._build_providers, loader._build_models
    own: list[Any] = []
    built: dict[bool, tuple[dict[str, Any], dict[str, Any]]] = {}

    def overlay_once(layers: list[Any]) -> Any:
        parts = [loader.read_snapshot(loader.FOLDER / loader.SNAPSHOT), loader.read_folder(loader.FOLDER)]
        if len(layers) != 2 or any(one is not part for one, part in zip(layers, parts, strict=True)):
            return overlay(layers)
        if not own:
            own.append(overlay(layers))
        return own[0]

    def providers_once(merged: Any, sandbox: bool, problems: list[str]) -> dict[str, Any]:
        if not any(merged is one for one in own):
            return build_providers(merged, sandbox, problems)
        if sandbox not in built:
            providers = build_providers(merged, sandbox, problems)
            built[sandbox] = providers, build_models(merged, providers, problems)
        return built[sandbox][0]

    def models_once(merged: Any, providers: dict[str, Any], problems: list[str]) -> dict[str, Any]:
        for known, models in built.values():
            if providers is known:
                return models
        return build_models(merged, providers, problems)

    loader.overlay, loader._build_providers, loader._build_models = overlay_once, providers_once, models_once
