"""The embedded cluster's own certificate authority and server certificate, made once and kept in its directory.

kubectl sends no token over plain HTTP, hence TLS even on loopback.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpupools.simulator.files import write_atomically

LIFETIME = timedelta(days=3650)
# A certificate this close to its end is replaced at the start.
RENEW_BEFORE = timedelta(days=30)

_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", "::1")


class Authority:
    """Files of the authority in ``<directory>/pki``: ca.crt, ca.key, server.crt, server.key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "pki"
        self.ca_certificate = self.directory / "ca.crt"
        self.certificate = self.directory / "server.crt"
        self.key = self.directory / "server.key"

    def ensure(self, now: datetime | None = None) -> None:
        """Make the certificates, or keep those that are there and still good."""
        moment = now or datetime.now(UTC)
        if self._good(moment):
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded-cluster-ca")])
        ca = (
            _builder(ca_name, ca_name, ca_key.public_key(), moment)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
        server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        certificate = (
            _builder(server_name, ca_name, key.public_key(), moment)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            # Strict verification (Python 3.13's default) wants to see who signed.
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        write_atomically(self.directory / "ca.key", _pem(ca_key))
        write_atomically(self.key, _pem(key))
        write_atomically(self.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        write_atomically(self.ca_certificate, ca.public_bytes(serialization.Encoding.PEM))

    def _good(self, moment: datetime) -> bool:
        if not (self.ca_certificate.exists() and self.certificate.exists() and self.key.exists()):
            return False
        ca = x509.load_pem_x509_certificate(self.ca_certificate.read_bytes())
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        if certificate.not_valid_after_utc - RENEW_BEFORE < moment:
            return False
        # A start that was killed between two files leaves a pair that does not belong together.
        key = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        if key.public_key() != certificate.public_key():
            return False
        wanted = x509.SubjectKeyIdentifier.from_public_key(ca.public_key()).digest
        signer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        return signer.key_identifier == wanted


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, moment: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks of container and host may differ by a little.
        .not_valid_before(moment - timedelta(minutes=5))
        .not_valid_after(moment + LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
