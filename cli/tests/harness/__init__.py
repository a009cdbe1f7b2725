"""Programs and services that the tests of the client share."""
