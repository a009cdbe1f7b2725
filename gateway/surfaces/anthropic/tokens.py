"""POST /v1/messages/count_tokens: an estimate made here, without any upstream and without a tokenizer."""

from gateway.surfaces.anthropic.reader import Survey
from gateway.surfaces.anthropic.schema import Prompt

# Bytes of text a token: prose has 4 and more, code and JSON about 3; a count that is rather too high keeps clients
# from running into the end of the context.
BYTES_PER_TOKEN = 3.5
MESSAGE_TOKENS = 4  # the frame of a message
MEDIA_TOKENS = 1600  # an image of the largest size that is not scaled down (Anthropic documentation, "Vision")
FILE_TOKENS = 6000  # two pages of a PDF, text and picture
TOOLS_TOKENS = 346  # the instructions that come with tools (Anthropic documentation, "Tool use", pricing)


def estimate(body: Prompt) -> int:
    """Tokens that the prompt has, about; at least 1."""
    survey = Survey()
    survey.add_prompt(body)
    tokens = survey.text / BYTES_PER_TOKEN + MESSAGE_TOKENS * len(body.messages)
    tokens += MEDIA_TOKENS * survey.images + FILE_TOKENS * survey.files + (TOOLS_TOKENS if body.tools else 0)
    return max(1, round(tokens))
