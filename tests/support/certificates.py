"""Self-signed certificates for servers of the tests."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(path: Path, *names: str) -> str:
    """Return the path of a new certificate for these names and addresses, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), False)
    signed = builder.sign(key, hashes.SHA256())
    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    path.write_bytes(signed.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return str(path)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
