"""Aspect ratios and sizes of Google's image models, and `imageConfig` of a chat request.

Wire facts: Gemini API, "Image generation", tables of aspect ratios and sizes by model; Imagen, "aspectRatio".
"""

from typing import Any

from gateway.providers.google.traits import Traits
from gateway.providers.image_codecs import SHOWN
from gateway.providers.protocol import Target

RATIOS = ("1:1", "3:2", "2:3", "4:3", "3:4", "5:4", "4:5", "16:9", "9:16", "21:9")
LONG_RATIOS = ("4:1", "1:4", "8:1", "1:8")  # supported by the small models from generation 3.1 on
LONG_RATIOS_FROM = 3.1
PREDICTED_RATIOS = ("1:1", "4:3", "3:4", "16:9", "9:16")
IMAGE_SIZES = ("1K", "2K", "4K")
DEFAULT_SIZE = "1K"  # the default without imageSize
SIZES_FROM = 3  # older generations make images of one size only


def ratios_of(traits: Traits) -> tuple[str, ...]:
    """Return the aspect ratios of a model that makes images by generateContent."""
    if traits.generation >= LONG_RATIOS_FROM and not traits.pro:
        return RATIOS + LONG_RATIOS
    return RATIOS


def sizes_of(traits: Traits) -> tuple[str, ...]:
    """Return the sizes of a model that makes images by generateContent."""
    if traits.generation >= SIZES_FROM:
        return IMAGE_SIZES
    return (DEFAULT_SIZE,)


def write_image_output(
    options: dict[str, Any], target: Target, traits: Traits, config: dict[str, Any], warnings: list[str]
) -> None:
    """Write the fields that request image output. `options` is the caller's `image_config`."""
    config["responseModalities"] = ["TEXT", "IMAGE"]
    image: dict[str, str] = {}
    fields = {"aspect_ratio": ("aspectRatio", ratios_of(traits)), "image_size": ("imageSize", sizes_of(traits))}
    for name, (wire, offered) in fields.items():
        value = options.get(name)
        if not value or value == DEFAULT_SIZE:
            continue
        if value in offered:
            image[wire] = value
        else:
            reason = f"{target.mapping.key} takes {', '.join(offered)}"
            warnings.append(f"image_config: {name} {value[:SHOWN]} was left out: {reason}.")
    if image:
        config["imageConfig"] = image
    if options.get("seed") is not None:
        config["seed"] = int(options["seed"])
    lost = [name for name in ("image_quality", "n") if options.get(name) not in (None, 1, "auto")]
    if lost:
        warnings.append(f"image_config: {', '.join(lost)} has no counterpart at this provider and was left out.")
