"""The name and version that requests carry."""

from llmgateway_cli import __version__

USER_AGENT = f"llmgateway-cli/{__version__}"
