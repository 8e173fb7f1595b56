"""URLs, credentials, databases, TLS and unix sockets. No error or repr contains a secret."""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from plaza.core.errors import SettingError
from plaza.core.functions import Functions
from plaza.core.valkey import ConnectionOptions, ReplyError
from plaza.core.valkey.address import Address, parse_url
from tests.core.ledger import BOX_ITEMS, LIBRARY
from tests.core.relay import Relay
from tests.servers import Server, running_server
from tests.timeouts import connect_for_test, connection_error

SECRET = "p@ss/wörd:{1}"
QUOTED = "p%40ss%2Fw%C3%B6rd%3A%7B1%7D"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("valkey://example.org", Address(host="example.org")),
        ("redis://example.org:7000/3", Address(host="example.org", port=7000, database=3)),
        ("valkey://:secret@h", Address(host="h", password="secret")),
        (f"valkey://ana:{QUOTED}@h:1/2", Address(host="h", port=1, username="ana", password=SECRET, database=2)),
        ("valkey://[::1]:7000", Address(host="::1", port=7000)),
        ("valkey://[::1]", Address(host="::1")),
        ("valkey://h?db=4", Address(host="h", database=4)),
        ("unix:///run/valkey.sock", Address(path="/run/valkey.sock")),
        ("unix://ana:pw@/run/v.sock?db=2", Address(path="/run/v.sock", username="ana", password="pw", database=2)),
        ("valkey:///1", Address(host="127.0.0.1", database=1)),
    ],
)
def test_a_url_is_parsed_to_an_address(url: str, expected: Address) -> None:
    assert parse_url(url) == ([expected], False)


def test_a_cluster_url_has_some_of_its_nodes() -> None:
    nodes, clustered = parse_url("valkey+cluster://ana:pw@a:1,b,[::1]:3")
    assert clustered
    assert all(node.tls for node in parse_url("rediss+cluster://a:1,b:2")[0])
    assert [(node.host, node.port, node.password) for node in nodes] == [
        ("a", 1, "pw"),
        ("b", 6379, "pw"),
        ("::1", 3, "pw"),
    ]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://h", "cannot start with 'http'"),
        ("h:6379", "cannot start with"),
        ("valkey://h:port", "1 to 65535"),
        ("valkey://h:70000", "1 to 65535"),
        ("valkey://h/one", "must be a number"),
        ("valkey://a,b", "valkey\\+cluster"),
        ("valkey+cluster://a/1", "database 0"),
        ("valkey://h?timeuot=1", "unknown option 'timeuot'"),
        ("valkey://h?ssl_ca_certs=/x", "unknown option"),
        ("rediss://h?ssl_ca_certs=/no/such/file", "cannot be used"),
        ("unix://", "has no socket path"),
    ],
)
def test_an_invalid_url_is_rejected_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        parse_url(url)


def test_the_docs_have_every_option_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "connection.md").read_text()
    for limit in msgspec.structs.fields(ConnectionOptions):
        assert f"| `{limit.name}` | {limit.default} |" in page


async def test_the_first_example_of_the_docs_runs(server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "connection.md").read_text()
    example = page.split("```python\n")[1].split("```")[0].replace("valkey://127.0.0.1:6379", server.url)
    like = "server.register_function('social_like', function(keys, args) return keys[2] .. args[1] end)"
    with server.redis_client() as redis_client:
        redis_client.function_load(f"#!lua name=example\n{like}")
    # A line with its result in a comment becomes an assertion.
    checked = re.sub(r"^    (await .*)  # ([\[{].*[\]}]).*$", r"    assert \1 == \2", example, flags=re.MULTILINE)
    assert checked.count("assert") == 3
    names: dict[str, Any] = {}
    exec("async def run():\n" + textwrap.indent(checked, "    "), names)
    await names["run"]()


def test_the_text_of_an_address_has_no_password() -> None:
    [address], _ = parse_url(f"valkey://ana:{QUOTED}@h")
    assert SECRET not in repr(address) + str(address)
    with pytest.raises(SettingError) as caught:
        parse_url(f"valkey://ana:{QUOTED}@h:port")
    assert SECRET not in str(caught.value)
    assert QUOTED not in str(caught.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a password, also by a unix socket."""
    users = tmp_path_factory.mktemp("acl") / "users.acl"
    users.write_text(
        "user default on nopass ~* &* +@all\n"  # for the fixture's own ping
        f"user ana on >{SECRET} ~* &* +@all\n"
        "user plain on >pw ~* &* +@all -client|tracking\n"
    )
    path = tmp_path_factory.mktemp("run") / "v.sock"
    with running_server("--aclfile", str(users), "--unixsocket", str(path), "--unixsocketperm", "700") as server:
        yield server


async def test_a_user_and_password_are_accepted(guarded: Server) -> None:
    async with await connect_for_test(f"valkey://ana:{QUOTED}@127.0.0.1:{guarded.port}") as valkey:
        assert await valkey.call("ACL", "WHOAMI") == "ana"
        assert await valkey.call("ACL", "WHOAMI", raw=True) == b"ana"
        async with valkey.blocking() as alone:
            assert await alone.call("ACL", "WHOAMI") == "ana"
        assert SECRET not in repr(valkey)


async def test_a_password_alone_is_for_the_default_user() -> None:
    with running_server() as server:
        with server.redis_client() as redis_client:
            redis_client.config_set("requirepass", "pw")
        async with await connect_for_test(f"valkey://:pw@127.0.0.1:{server.port}") as valkey:
            assert await valkey.call("ACL", "WHOAMI") == "default"
        await connection_error(server.url, "NOAUTH")


async def test_the_error_of_a_wrong_password_does_not_contain_it(guarded: Server) -> None:
    error = await connection_error(f"valkey://ana:wrong-{QUOTED}@127.0.0.1:{guarded.port}", "WRONGPASS")
    assert SECRET not in repr(error) + str(error) + error.detail


async def test_a_user_without_permission_to_track_can_do_everything_else(guarded: Server) -> None:
    async with await connect_for_test(f"valkey://plain:pw@127.0.0.1:{guarded.port}") as valkey:
        assert await valkey.call("PING") == "PONG"
        with pytest.raises(ReplyError, match="tracking mode"):
            await valkey.tracked("GET", "k")
        functions = Functions(valkey, [LIBRARY])
        await functions.load()
        asked = await functions.query_with_batch("ledger_total", [BOX_ITEMS("b1")], [], [("PING",)], store=pytest.fail)
        assert asked == ["0", "PONG"]


async def test_databases_are_separate(guarded: Server) -> None:
    async with await connect_for_test(f"{guarded.url}/3") as three, await connect_for_test(guarded.url) as zero:
        await three.call("SET", "where", "three")
        assert await zero.call("GET", "where") is None
        assert await three.call("GET", "where", raw=True) == b"three"
        async with three.blocking() as alone:
            assert await alone.call("GET", "where") == "three"


async def test_a_missing_database_is_a_clear_error(guarded: Server) -> None:
    await connection_error(f"{guarded.url}/99", "DB index is out of range")


async def test_a_unix_socket_works(guarded: Server) -> None:
    path = guarded.options[guarded.options.index("--unixsocket") + 1]
    async with await connect_for_test(f"unix://ana:{QUOTED}@{path}?db=1") as valkey:
        assert await valkey.call("ACL", "WHOAMI") == "ana"
        info = await valkey.call("CLIENT", "INFO")
        assert path in info
        assert " db=1 " in info


@dataclass
class Tls:
    server: ssl.SSLContext
    authority: Path


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "plaza test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    hour = datetime.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - hour, now + hour)
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem, keys = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    keys.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem, keys)
    return Tls(context, pem)


# The server in the wheel is built without TLS, so a relay terminates TLS.
async def test_tls_with_a_trusted_certificate(server: Server, tls: Tls) -> None:
    async with (
        Relay(server.port, tls.server) as relay,
        await connect_for_test(f"rediss://127.0.0.1:{relay.port}/2?ssl_ca_certs={tls.authority}") as valkey,
    ):
        await valkey.call("SET", "k", "x" * 500_000)
        assert await valkey.call("GET", "k") == "x" * 500_000
        assert await valkey.call("GET", "k", raw=True) == b"x" * 500_000


async def test_tls_with_an_untrusted_certificate_fails(server: Server, tls: Tls) -> None:
    async with Relay(server.port, tls.server) as relay:
        await connection_error(f"rediss://127.0.0.1:{relay.port}", "certificate verify failed")
        elsewhere = f"rediss://localhost:{relay.port}?ssl_ca_certs={tls.authority}"
        await connection_error(elsewhere, "Hostname mismatch|not valid for 'localhost'")
