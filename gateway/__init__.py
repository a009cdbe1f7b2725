"""llmgateway: one API key in front of every model provider.

Layers import downwards only; docs/architecture.md has the table and tests/test_architecture.py enforces it.
"""

import sys

__version__ = "2.0.0"

# This line must parse on any Python 3, and run before the first syntax that an older version rejects.
if sys.version_info < (3, 11):  # noqa: UP036
    raise SystemExit(
        "error: llmgateway needs Python 3.11 or later, and {} is Python {}; with a newer one installed: "
        "make clean serve PYTHON=python3.11".format(sys.executable, ".".join(map(str, sys.version_info[:3])))
    )
