"""The Amazon Bedrock Converse format: one wire format for the models of many vendors, with Amazon's framing and
signatures.

May not know callers, other providers or how a connection is opened. Decided against: the vendor's SDK (its own pools,
retries and credential chain), and InvokeModel (a different body for each vendor).
"""
