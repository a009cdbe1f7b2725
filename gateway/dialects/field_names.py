"""Names of request fields by dialect or operation, so that errors and warnings use the caller's own field names.

Within the gateway a field has its name in chat completions.
"""

from gateway.dialects import anthropic
from gateway.errors import GatewayError
from gateway.neutral.parameters import ROWS, names_in

NAMES: dict[str, dict[str, str]] = {dialect: names_in(dialect) for row in ROWS for dialect in row.callers}


# Fields of a dialect that stand for service tiers.
TIER_FIELDS = {"anthropic": {tier: name for name, (tier, _) in anthropic.TIER_FIELDS.items()}}


def restate(error: GatewayError, surface: str) -> GatewayError:
    """Rename the field of `error` for the callers of a surface, also in the message if it is in backticks."""
    name = NAMES[surface].get(error.param)
    if name:
        error.message = error.message.replace(f"`{error.param}`", f"`{name}`")
        error.param = name
    return error


def reword(surface: str, warning: str) -> str:
    """Rename the field at the beginning of a warning, if any, for the callers of a surface."""
    first, space, rest = warning.partition(" ")
    if first == "service_tier":
        first = TIER_FIELDS.get(surface, {}).get(rest.partition(" ")[0], first)
    return NAMES.get(surface, {}).get(first, first) + space + rest
