"""The Amazon Bedrock Converse format: one wire form for the models of many vendors, framed and signed Amazon's way.

May not know callers, other providers or how a connection is opened. Decided against: the vendor's SDK (its own pools,
retries and credential chain), and InvokeModel (a body of its own for each vendor).
"""
