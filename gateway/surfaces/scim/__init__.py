"""SCIM 2.0 (RFC 7643, RFC 7644): an identity provider manages the members and groups of an organization."""
