"""The contents of a body as the format's own vendor takes them, with only what it would refuse changed.

Clients move between models and vendors within a session and send back what they got: signatures of other vendors, roles
of older versions of the format, contents without parts. Members of parts that are not known here stay.
"""

from typing import Any

from gateway.surfaces.google.opaque_tokens import is_enveloped

Json = dict[str, Any]
USER = "user"
ROLES = {"function": USER, "tool": USER}
INSTRUCTIONS = "system"


def mend(contents: list[Json]) -> list[Json]:
    """Return the contents; instructions stay among them, under the role system."""
    mended: list[Json] = []
    for content in contents:
        parts = [part for each in content.get("parts") or () if (part := _mend_part(each))]
        if parts:
            role = content.get("role") or USER
            mended.append({**content, "role": ROLES.get(role, role), "parts": parts})
    return mended


def is_instructed(contents: list[Json]) -> bool:
    """Return whether instructions are among the contents."""
    return any(content.get("role") == INSTRUCTIONS for content in contents)


def _mend_part(part: Json) -> Json | None:
    """Return a part without the opaque data of another vendor; None for another vendor's thought."""
    signature = part.get("thoughtSignature")
    if not signature or not is_enveloped(signature):
        return part
    if part.get("thought"):
        return None
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    return None if plain in ({}, {"text": ""}) else plain
