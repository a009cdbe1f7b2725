"""Token estimates of a prompt, without an upstream call and without a tokenizer."""

# Bytes of text per token: prose has 4 and more, code and JSON about 3. An estimate that is slightly too high keeps
# clients from exceeding the context.
BYTES_PER_TOKEN = 3.5
MESSAGE_TOKENS = 4  # tokens that frame a message
MEDIA_TOKENS = 1600  # an image of the largest size that is not scaled down (Anthropic documentation, "Vision")
FILE_TOKENS = 6000  # two pages of a PDF, text and image
TOOLS_TOKENS = 346  # the instructions that come with tools (Anthropic documentation, "Tool use", pricing)


def estimate_tokens(text: int, messages: int, images: int, files: int, tools: bool) -> int:
    """Estimate the tokens of `text` bytes in this many messages, with images, files and tools; at least 1."""
    tokens = text / BYTES_PER_TOKEN + MESSAGE_TOKENS * messages
    tokens += MEDIA_TOKENS * images + FILE_TOKENS * files + (TOOLS_TOKENS if tools else 0)
    return max(1, round(tokens))
