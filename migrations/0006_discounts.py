"""Discounts, what they saved on a usage row, and budgets for the provider keys that have a spending bound."""

STATEMENTS = (
    """CREATE TABLE discount (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    provider VARCHAR(80) NOT NULL,
    model VARCHAR(255) NOT NULL,
    fraction_ppm INTEGER NOT NULL CHECK (fraction_ppm > 0 AND fraction_ppm < 1000000),
    starts_at BIGINT,
    ends_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)""",
    "CREATE UNIQUE INDEX discount_place ON discount (organization, provider, model)",
    # NULL and not 0 where nothing was taken off: most rows, which then grow by nothing.
    "ALTER TABLE usage ADD COLUMN discount_ppm INTEGER",
    "ALTER TABLE usage ADD COLUMN discount_nusd BIGINT",
    # Counting begins with this step: what was spent before it left no counter.
    """INSERT INTO budget (id, scope, scope_id, kind, limit_nusd, settled_nusd, leased_nusd, period, generation)
    SELECT id || ':total', 'provider_key', id, 'total', max_spend_nusd, 0, 0, '', 0
    FROM provider_key WHERE max_spend_nusd IS NOT NULL""",
)


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
