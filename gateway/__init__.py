"""llmgateway: one API key in front of every model provider.

Layers import downwards only; docs/architecture.md has the table and tests/test_architecture.py enforces it.
"""

__version__ = "1.0.0"
