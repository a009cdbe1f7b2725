"""Images that the MCP endpoint stores for the operator."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.neutral.parts import Media
from gateway.surfaces.mcp.generation import save


def save_in(folder: Path, name: str, *media_types: str) -> list[str]:
    def run(work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    services = SimpleNamespace(
        settings=SimpleNamespace(media=SimpleNamespace(upload_dir=str(folder))),
        background=SimpleNamespace(threads=SimpleNamespace(run=run)),
    )
    ctx: Any = SimpleNamespace(services=services, caller=SimpleNamespace(rules=()))
    message = save(ctx, name, [Media(media_type, data="YQ==") for media_type in media_types])
    return [os.path.basename(path) for path in message.removeprefix("Saved: ").split(", ")]


def test_a_file_without_an_ending_gets_that_of_its_type(tmp_path: Path) -> None:
    types = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/avif")
    assert save_in(tmp_path, "boat", *types) == ["boat-1.png", "boat-2.jpg", "boat-3.webp", "boat-4.gif", "boat-5.png"]


def test_the_ending_of_an_image_is_kept_and_any_other_is_part_of_the_name(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg", "a.jpeg", "a.webp", "a.GIF"):
        assert save_in(tmp_path, name, "image/png") == [name]
    assert save_in(tmp_path, "a.html", "image/png") == ["a.html.png"]
