"""Token estimates of a prompt, without an upstream call and without a tokenizer."""

# Bytes of text a token: prose has 4 and more, code and JSON about 3; a count that is rather too high keeps clients
# from running into the end of the context.
BYTES_PER_TOKEN = 3.5
MESSAGE_TOKENS = 4  # the frame of a message
MEDIA_TOKENS = 1600  # an image of the largest size that is not scaled down (Anthropic documentation, "Vision")
FILE_TOKENS = 6000  # two pages of a PDF, text and image
TOOLS_TOKENS = 346  # the instructions that come with tools (Anthropic documentation, "Tool use", pricing)


def estimate_tokens(text: int, messages: int, images: int, files: int, tools: bool) -> int:
    """Tokens of `text` bytes in so many messages, with images, files and tools; at least 1."""
    tokens = text / BYTES_PER_TOKEN + MESSAGE_TOKENS * messages
    tokens += MEDIA_TOKENS * images + FILE_TOKENS * files + (TOOLS_TOKENS if tools else 0)
    return max(1, round(tokens))
