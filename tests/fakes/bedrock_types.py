"""Botocore's model of the Converse operations, its validator, and its signer."""

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import Session
from botocore.validate import ParamValidator

__all__ = ["SERVICE", "AWSRequest", "Credentials", "ParamValidator", "SigV4Auth"]

SERVICE = Session().get_service_model("bedrock-runtime")
