"""Preferences that have no effect for a model: they are ignored with a warning, whatever their value."""

from collections.abc import Callable

from gateway.errors import InvalidRequest
from gateway.neutral.request import Options
from gateway.routing.resolve import Resolution

CHOOSING_MODES = ("auto", "smart")
FIXED_MODES = ("pinned", "custom")
IMAGE = "image"


def check_preferences(options: Options, resolution: Resolution) -> tuple[Options, tuple[str, ...]]:
    """Return the options that have an effect, and a warning for each preference that has none.

    Raise InvalidRequest for an invalid value of a preference that has an effect, and for `free_models_only` with a
    specific model, because that preference is a promise about costs.
    """
    warnings: list[str] = []
    for mistake in options.mistakes:
        effect, reason = EFFECTS[mistake.field]
        if effect(resolution):
            raise InvalidRequest(mistake.message, param=mistake.param)
        warnings.append(_warn(mistake.field, reason, resolution))
    if resolution.kind in CHOOSING_MODES:
        return options, ()
    if options.free_models_only:
        raise InvalidRequest(
            "free_models_only is available only with the models auto and smart.", param="free_models_only"
        )
    routing = EFFECTS["routing"]
    no_reasoning = EFFECTS["no_reasoning"]
    if options.no_reasoning:
        options = options.with_changes(no_reasoning=False)
        warnings.append(_warn("no_reasoning", no_reasoning[1], resolution))
    if options.routing not in ("", "auto") and not routing[0](resolution):
        options = options.with_changes(routing="")
        warnings.append(_warn("routing", routing[1], resolution))
    return options, tuple(warnings)


def _warn(field: str, reason: str, resolution: Resolution) -> str:
    return f"{field} was left out: {reason.format(resolution.requested_model)}."


def _chooses_provider(resolution: Resolution) -> bool:
    return resolution.kind not in FIXED_MODES


def _chooses_model(resolution: Resolution) -> bool:
    return resolution.kind in CHOOSING_MODES


def _makes_images(resolution: Resolution) -> bool:
    return resolution.model is None or IMAGE in resolution.model.output_modalities


# Field → whether it has an effect, and the reason why not.
EFFECTS: dict[str, tuple[Callable[[Resolution], bool], str]] = {
    "routing": (_chooses_provider, "{} names its provider"),
    "no_reasoning": (_chooses_model, "{} is a specific model, and only auto chooses a model"),
    "image_config": (_makes_images, "{} does not generate images"),
}
