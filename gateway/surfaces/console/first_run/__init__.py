"""The first run: signing in by the link of the terminal, and three steps to the first answered request."""
