"""Hooks of one package are ignored inside the block; those of others, and later ones, are registered."""

import os

import pytest

from gateway.runtime.process import without_fork_hooks


def make_hook(module: str):
    def hook() -> None: ...

    hook.__module__ = module
    return hook


def test_hooks_of_the_package_are_ignored_inside_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: registered.extend(map(str, hooks)))
    with pytest.raises(OSError, match="away"), without_fork_hooks("opentelemetry"):
        os.register_at_fork(after_in_child=make_hook("opentelemetry.sdk.trace"))
        os.register_at_fork(before=make_hook("opentelemetry_of_others"))
        os.register_at_fork(before=[].clear)  # a method without a module
        raise OSError("away")
    os.register_at_fork(after_in_parent=make_hook("opentelemetry.sdk.trace"))
    assert registered == ["before", "before", "after_in_parent"]
