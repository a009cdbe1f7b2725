"""The pages for automation: service accounts, and tokens of identity providers as credentials."""
