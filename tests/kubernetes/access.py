"""Certificates and kubeconfigs of the test's Kubernetes: an own authority, one name per user."""

import base64
import json
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ADMINISTRATORS = "system:masters"
SERVER_NAMES = (
    "127.0.0.1",
    "10.0.0.1",
    "localhost",
    "kubernetes.default.svc",
)


class Authority:
    """Signs the API server's certificate and those of its users."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca_file)
        self.server_certificate, self.server_key = self._files(
            directory / "apiserver", self._ca.issue_cert(*SERVER_NAMES)
        )
        self.service_account_key = directory / "service-accounts.pem"
        # Every verifier of service account tokens has RS256.
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.service_account_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )

    @property
    def ca_pem(self) -> str:
        return self.ca_file.read_text()

    def user_certificate(self, directory: Path, user: str, group: str = "") -> tuple[Path, Path]:
        """Files with the certificate and the key: CN is the user, O the group."""
        # Go refuses a certificate without an alternative name; only the subject is looked at.
        issued = self._ca.issue_cert(
            "client.test", common_name=user, organization_name=group or "drivetrain:users"
        )
        return self._files(directory / user.replace(":", "_"), issued)

    @staticmethod
    def _files(path: Path, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = path.with_suffix(".crt"), path.with_suffix(".key")
        issued.private_key_pem.write_to_path(key)
        issued.cert_chain_pems[0].write_to_path(certificate)
        return certificate, key


def write_kubeconfig(
    path: Path, server: str, ca_pem: str, user: dict[str, Any], namespace: str = "default"
) -> Path:
    """A kubeconfig that needs no other file. JSON is YAML."""
    cluster = {"server": server, "certificate-authority-data": encoded(ca_pem)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [
            {
                "name": "test",
                "context": {"cluster": "test", "user": "test", "namespace": namespace},
            }
        ],
        "current-context": "test",
    }
    path.write_text(json.dumps(content, indent=1))
    path.chmod(0o600)
    return path


def certificate_user(certificate: Path, key: Path) -> dict[str, Any]:
    return {
        "client-certificate-data": encoded(certificate.read_text()),
        "client-key-data": encoded(key.read_text()),
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
