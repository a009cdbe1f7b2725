"""The pages of teams: groups of members with shared limits and rules."""
