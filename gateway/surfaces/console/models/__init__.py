"""`/console/models`: the catalogue as the visitor may use it, the comparison of models, and custom models."""
