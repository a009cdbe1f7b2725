"""The pages of budgets: limits of an organization with what is used of them."""
