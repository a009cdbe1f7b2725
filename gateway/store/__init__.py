"""The store: connections, transactions, the journal, documents, migrations and the optional redis.

It knows SQL, drivers and lock files; it does not know the meaning of any row. Work is a repeatable function passed to
`Database.read` or `Database.write`, so that a connection is held only while it is used and a transaction can be
repeated. Decided against: playhouse's connection pool (it connects under one lock and pings on each check-out),
its migration runner (no lock, no checksum), and a second dialect layer over peewee.
"""
