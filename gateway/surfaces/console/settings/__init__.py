"""The page of an organization: its name, credits, compliance policy, key caps, access rules and managed settings."""
