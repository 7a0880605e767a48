"""An object store behind a certificate of an own CA, and credentials of a role.

The role's credentials come from a small stand-in of AWS's token service, which hands out the keys
of the test's S3 server, without a session token, which that server refuses. What the real service
answers is not tested here.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trustme

from drivetrain.errors import StorageError
from drivetrain.s3_storage import S3Storage
from services.runtime.errors import StoreError
from services.runtime.s3_store import S3Store
from tests import s3_server
from tests.certificates import EXPIRED, written
from tests.variants import variants

pytestmark = pytest.mark.timeout(s3_server.BUILD_SECONDS + 60)
ROLE = "arn:aws:iam::000000000000:role/drivetrain"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def use(store: S3Store | S3Storage, *before_each: Callable[[], object]) -> None:
    """Write and read an object once, or after each of these; by a client of services or of pods."""
    if isinstance(store, S3Store):
        asyncio.run(_use(store, before_each))
        return
    try:
        for prepare in before_each or [lambda: None]:
            prepare()
            store.put("key", b"content")
            assert store.get("key") == b"content"
    finally:
        store.close()


async def _use(store: S3Store, before_each: Sequence[Callable[[], object]]) -> None:
    try:
        for prepare in before_each or [lambda: None]:
            prepare()
            await store.put("key", b"content")
            assert await store.get("key") == b"content"
    finally:
        await store.close()


@contextmanager
def answering(
    answer: Callable[[bytes], bytes], tls: trustme.LeafCert | None = None
) -> Iterator[int]:
    """The port of an HTTP server on loopback that answers every POST with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.configure_cert(context)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


CLIENTS = [S3Store, S3Storage]


@pytest.mark.parametrize("client", variants(CLIENTS))
def test_a_store_with_a_certificate_of_an_own_ca_is_verified(
    client: type, credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = s3_server.find_binary()
    if isinstance(binary, str):
        pytest.skip(binary)
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    certificate = written(tmp_path, "server", ca, "localhost")
    (tmp_path / "objects").mkdir()
    tls = s3_server.ServerCertificate(*certificate, tmp_path / "ca.crt")
    with s3_server.running_s3(binary, tmp_path / "objects", tls) as s3:
        with pytest.raises((StoreError, StorageError), match=r"give the CA .* in AWS_CA_BUNDLE"):
            use(client(s3_server.BUCKET, "p", s3.endpoint_url))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.crt"))
        use(client(s3_server.BUCKET, "p", s3.endpoint_url))


@pytest.mark.parametrize("client", variants(CLIENTS))
@pytest.mark.parametrize(
    ("host", "facts", "problem"),
    [
        pytest.param(
            "localhost",
            EXPIRED,
            "has expired.*: renew the certificate of the object store",
            id="expired",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "s3.example",
            {},
            "use a name of its certificate in DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL",
            id="of another host",
        ),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused(
    client: type,
    credentials: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    facts: dict,
    problem: str,
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.crt"))
    refused = pytest.raises((StoreError, StorageError), match=problem)
    with answering(bytes, tls=ca.issue_cert(host, **facts)) as port, refused:
        use(client("bucket", "p", f"https://localhost:{port}"))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_role_is_taken_with_the_token_that_the_file_holds_now(
    client: type,
    s3: s3_server.RunningS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Kubernetes gives it to a service account. Its credentials last for a moment each time."""
    tokens: list[str] = []
    token_file = tmp_path / "token"

    def assume(request: bytes) -> bytes:
        asked = parse_qs(request.decode())
        assert asked["Action"] == ["AssumeRoleWithWebIdentity"]
        assert asked["RoleArn"] == [ROLE]
        tokens.append(asked["WebIdentityToken"][0])
        return ANSWER.format(
            key=s3_server.ACCESS_KEY,
            secret=s3_server.SECRET_KEY,
            until=(datetime.now(UTC) + timedelta(seconds=1)).isoformat(),
        ).encode()

    for name in s3_server.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with answering(assume) as port:
        for name, value in {
            "AWS_ROLE_ARN": ROLE,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token_file),
            "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        renewals = [partial(token_file.write_text, token) for token in ("first", "renewed")]
        use(client(s3_server.BUCKET, "by-role", s3.endpoint_url), *renewals)
    assert list(dict.fromkeys(tokens)) == ["first", "renewed"]


ANSWER = """\
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken></SessionToken><Expiration>{until}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>
"""
