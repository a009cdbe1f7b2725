"""Who calls, what they may use, and with which credential: all that requests read of the accounts."""
