"""POST /v1/messages/count_tokens: an estimate made here."""

from gateway.surfaces.anthropic.reader import Survey
from gateway.surfaces.anthropic.schema import Prompt
from gateway.surfaces.estimates import estimate_tokens


def estimate(body: Prompt) -> int:
    """Tokens that the prompt has, about; at least 1."""
    survey = Survey()
    survey.add_prompt(body)
    return estimate_tokens(survey.text, len(body.messages), survey.images, survey.files, bool(body.tools))
