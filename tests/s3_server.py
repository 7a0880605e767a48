"""A real S3 server for tests: versitygw over a directory.

The binary is looked for on the path and in the user's cache. In CI it is built there when Go is at
hand (a few minutes, once); elsewhere the tests that need it are skipped and say how to get it.
"""

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from botocore.session import get_session

from services.standalone.ports import free_port
from tests.waiting import wait_until

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drivetrain" / "bin"
BUILD_SECONDS = 900
ACCESS_KEY, SECRET_KEY, BUCKET = "drivetrain", "not-a-secret", "tests"
ENVIRONMENT: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass(frozen=True, slots=True)
class RunningS3:
    """A server with one bucket, and its directory: the bucket's objects are files below it."""

    endpoint_url: str
    directory: Path


class ServerCertificate(NamedTuple):
    """PEM files: the server's certificate and key, and the CA that signed it."""

    certificate: Path
    key: Path
    ca: Path


@contextmanager
def running_s3(
    binary: Path, directory: Path, tls: ServerCertificate | None = None
) -> Iterator[RunningS3]:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [str(binary), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
    if tls is not None:
        endpoint = f"https://localhost:{port}"
        command += ["--cert", str(tls.certificate), "--key", str(tls.key)]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    server = subprocess.Popen(
        [*command, "--health", "/health", "posix", str(directory)],
        env={**os.environ, **keys},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        trusted = str(tls.ca) if tls else None
        wait_until(lambda: _is_healthy(endpoint, trusted), "the S3 server answers", every=0.05)
        _create_bucket(endpoint, trusted)
        yield RunningS3(endpoint, directory)
    finally:
        server.terminate()
        server.wait(10)


def _is_healthy(endpoint: str, trusted: str | None) -> bool:
    verify = ssl.create_default_context(cafile=trusted)
    try:
        return httpx.get(f"{endpoint}/health", trust_env=False, verify=verify).is_success
    except httpx.HTTPError:
        return False


def _create_bucket(endpoint: str, trusted: str | None) -> None:
    client = get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        verify=trusted,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def find_binary() -> Path | str:
    """Where it is, or why it is not there."""
    found = shutil.which("versitygw") or shutil.which("versitygw", path=str(CACHE))
    if found:
        return Path(found)
    recipe = f"GOBIN={CACHE} go install {MODULE}"
    if not os.environ.get("CI"):
        return f"no S3 server: {recipe}"
    if shutil.which("go") is None:
        return f"no S3 server, and no Go to build it: {recipe}"
    return _built(recipe)


def _built(recipe: str) -> Path | str:
    CACHE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(CACHE), "GOFLAGS": "-modcacherw"}
    try:
        subprocess.run(
            ["go", "install", MODULE],
            env=environment,
            capture_output=True,
            timeout=BUILD_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"no S3 server: {recipe} failed: {error}"
    return CACHE / "versitygw"
