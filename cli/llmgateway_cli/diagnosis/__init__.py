"""The checks of `doctor`, each of which yields findings with their remedies."""
