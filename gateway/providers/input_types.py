"""The field of an embeddings call with the purpose of the vectors."""

from typing import Any

from gateway.catalogue.entries import Mapping
from gateway.neutral.embeddings import GENERAL, InputType

# A key of a mapping's `extra`: the name of the provider's field (`field`), and its words for the input types.
INPUT_TYPES = "input_types"


def write_input_type(kind: InputType, mapping: Mapping, body: dict[str, Any]) -> tuple[str, ...]:
    """Add the field to a body. Return a warning when the model does not distinguish this type."""
    if not kind:
        return ()
    words = mapping.extra.get(INPUT_TYPES, {})
    word = words.get(kind) or words.get(GENERAL.get(kind))
    if word is None:
        return (f"input_type was left out: {mapping.key} does not distinguish {kind}.",)
    body[words["field"]] = word
    return ()
