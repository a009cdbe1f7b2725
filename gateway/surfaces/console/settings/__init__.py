"""The page of an organization: its name, credits, compliance policy, key caps and access rules."""
