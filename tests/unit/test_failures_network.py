"""
Failures of the network: HTTP, sockets, TLS and names, raised by the real thing.

The class of each is what decides whether Airflow's retries are spent on it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import psycopg2
import pytest
import requests
from airflow.providers.common.compat.sdk import AirflowException

from airflow_safe_ops.failures.classify import classify
from airflow_safe_ops.failures.evidence import seconds_of
from tests.failures import caught, of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    """Answers with the status that the path names; ``/drop`` and ``/sleep`` do what they say."""

    def do_GET(self) -> None:
        if self.path == "/drop":
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            return
        if self.path == "/sleep":
            self.server.stop.wait(5)  # type: ignore[attr-defined]
        status = int(self.path[1:]) if self.path[1:].isdigit() else 200
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", "7")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        running.stop = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.stop.set()  # type: ignore[attr-defined]
        running.shutdown()
        thread.join()


STATUS = {
    400: "contract",
    401: "permission",
    403: "permission",
    404: "contract",
    405: "contract",
    407: "permission",
    408: "transient",
    409: "contract",
    410: "contract",
    422: "contract",
    423: "contention",
    425: "transient",
    429: "resource",
    500: "transient",
    501: "contract",
    502: "transient",
    503: "transient",
    504: "transient",
    507: "resource",
}


@pytest.mark.parametrize("client", [httpx, requests], ids=lambda module: module.__name__)
@pytest.mark.parametrize(("status", "expected"), STATUS.items())
def test_a_status_of_http(server: str, client: Any, status: int, expected: str) -> None:
    error = caught(lambda: client.get(f"{server}/{status}").raise_for_status())
    verdict = classify(error)
    assert (verdict.failure, verdict.code) == (expected, f"http:{status}")
    assert verdict.retry_after == (7.0 if status in (429, 503) else None)


@pytest.mark.parametrize("client", [httpx, requests], ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    ("path", "expected"), [("/drop", "transient"), ("/sleep", "transient")], ids=["connection reset", "read time-out"]
)
def test_a_server_that_does_not_answer(server: str, client: Any, path: str, expected: str) -> None:
    assert classify(caught(lambda: client.get(server + path, timeout=0.2))).failure == expected


def test_an_error_of_http_in_the_hook_s_own_words() -> None:
    """Airflow's HttpHook raises AirflowException with the status in its words."""
    assert of(AirflowException("503:Service Unavailable")) == ("transient", "http:503")
    assert of(AirflowException("404:Not Found")) == ("contract", "http:404")
    assert of(AirflowException("nothing to see")) == ("unknown", "")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ThrottlingException", 400, "resource"),
        ("ProvisionedThroughputExceededException", 400, "resource"),
        ("SlowDown", 503, "resource"),
        ("AccessDenied", 403, "permission"),
        ("ExpiredTokenException", 400, "permission"),
        ("InternalError", 500, "transient"),
        ("NoSuchBucket", 404, "contract"),
    ],
)
def test_aws(code: str, status: int, expected: str) -> None:
    """By the shape that botocore documents for ClientError: throttling is answered with 400 there."""
    error = type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})("An error occurred")
    error.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert classify(error).failure == expected


def test_a_limit_that_is_answered_with_403() -> None:
    request = httpx.Request("GET", "http://x")
    response = httpx.Response(403, request=request)
    error = httpx.HTTPStatusError("403 API rate limit exceeded", request=request, response=response)
    assert of(error) == ("resource", "http:403")


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert seconds_of("120", now) == 120
    assert seconds_of("Thu, 01 Jan 2026 00:01:00 GMT", now) == 60
    assert seconds_of("Wed, 31 Dec 2025 00:01:00 GMT", now) == 0
    assert seconds_of("soon", now) is seconds_of("", now) is seconds_of(None, now) is None


# --- sockets, TLS, names ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed() -> Iterator[int]:
    """A port that is bound, so nobody else takes it, and on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server whose certificate signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(folder))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()
        thread = threading.Thread(target=shake_hands, args=(listening, context, stop))
        thread.start()
        yield listening.getsockname()[1]
        stop.set()
        with contextlib.suppress(OSError):
            socket.create_connection(listening.getsockname(), timeout=1).close()
        thread.join()


def self_signed(folder: Path) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


def shake_hands(listening: socket.socket, context: ssl.SSLContext, stop: threading.Event) -> None:
    while not stop.is_set():
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)


@pytest.mark.parametrize(
    "connect",
    [
        lambda port: httpx.get(f"http://127.0.0.1:{port}"),
        lambda port: requests.get(f"http://127.0.0.1:{port}", timeout=5),
        lambda port: socket.create_connection(("127.0.0.1", port), timeout=5),
        lambda port: psycopg.connect(f"host=127.0.0.1 port={port} connect_timeout=5"),
        lambda port: psycopg2.connect(f"host=127.0.0.1 port={port} connect_timeout=5"),
    ],
    ids=["httpx", "requests", "socket", "psycopg", "psycopg2"],
)
def test_a_port_on_which_nobody_listens(closed: int, connect: Callable[[int], object]) -> None:
    assert classify(caught(lambda: connect(closed))).failure == "transient"


@pytest.mark.parametrize(
    "connect",
    [
        lambda host: httpx.get(f"http://{host}"),
        lambda host: requests.get(f"http://{host}", timeout=5),
        lambda host: socket.create_connection((host, 80), timeout=5),
        lambda host: psycopg.connect(f"host={host} connect_timeout=5"),
        lambda host: psycopg2.connect(f"host={host} connect_timeout=5"),
    ],
    ids=["httpx", "requests", "socket", "psycopg", "psycopg2"],
)
def test_a_name_that_does_not_exist(connect: Callable[[str], object]) -> None:
    """A machine whose name server does not answer says that instead: that passes."""
    error = caught(lambda: connect("no-such-host.invalid"))
    verdict = classify(error)
    no_answer = verdict.code == "dns:EAI_AGAIN" or "Temporary failure" in str(error)
    assert verdict.failure == ("transient" if no_answer else "contract")


def test_a_name_server_that_does_not_answer() -> None:
    error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert of(error) == ("transient", "dns:EAI_AGAIN")
    assert of(socket.gaierror(socket.EAI_NONAME, "Name or service not known")) == ("contract", "dns:EAI_NONAME")


@pytest.mark.parametrize(
    "connect",
    [
        lambda port: httpx.get(f"https://127.0.0.1:{port}"),
        lambda port: requests.get(f"https://127.0.0.1:{port}", timeout=5),
        lambda port: ssl.create_default_context().wrap_socket(
            socket.create_connection(("127.0.0.1", port), timeout=5), server_hostname="localhost"
        ),
    ],
    ids=["httpx", "requests", "ssl"],
)
def test_a_certificate_that_nobody_trusts(untrusted: int, connect: Callable[[int], object]) -> None:
    assert classify(caught(lambda: connect(untrusted))).failure == "permission"


def test_no_tls_on_the_other_side(server: str) -> None:
    assert classify(caught(lambda: httpx.get(server.replace("http:", "https:")))).failure == "contract"
