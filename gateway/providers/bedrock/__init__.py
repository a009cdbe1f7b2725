"""The Amazon Bedrock Converse format, one format for the models of many vendors, with Amazon's framing and signatures.

The package knows neither callers nor other providers nor how a connection is opened. Decided against: the vendor's SDK
(with its own pools, retries and credential chain), and InvokeModel (a different body for each vendor).
"""
