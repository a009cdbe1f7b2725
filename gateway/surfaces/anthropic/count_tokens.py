"""POST /v1/messages/count_tokens: a local estimate."""

from gateway.surfaces.answer_structs import ModelApiAnswer
from gateway.surfaces.anthropic.reader import PromptSummary
from gateway.surfaces.anthropic.schema import Prompt
from gateway.surfaces.token_estimates import estimate_tokens


class TokenCountAnswer(ModelApiAnswer):
    input_tokens: int


def estimate(body: Prompt) -> int:
    """Return the estimated tokens of the prompt; at least 1."""
    prompt = PromptSummary()
    prompt.add_prompt(body)
    return estimate_tokens(prompt.text, len(body.messages), prompt.images, prompt.files, bool(body.tools))
