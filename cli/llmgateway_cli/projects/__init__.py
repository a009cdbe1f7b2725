"""Projects that `init` makes from templates, and what `add`, `dev` and `upgrade` do with them."""
