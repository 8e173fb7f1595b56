"""The commands as real processes with real signals. No process is left afterwards."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from plaza.cli import parser
from plaza.core.functions import GENERATION
from tests.databases import with_tables
from tests.processes import ServerProcess, environment, plaza, run_program, serving, until
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS


def redis_client(data_dir: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(data_dir / "valkey.sock"), decode_responses=True)


def claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the error message. It must be one line without a traceback."""
    assert result.stdout == ""
    assert result.stderr.startswith("plaza: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_serve_prints_urls_that_work(tmp_path: Path) -> None:
    with serving(tmp_path / "var") as server:
        printed = server.printed()
        assert f"Pages   {server.url}/app" in printed
        assert f"Docs    {server.url}/docs" in printed
        assert f"Data    {tmp_path}/var" in printed
        assert f"Valkey  {tmp_path}/var/valkey.sock" in printed
        assert redis_client(tmp_path / "var").ping()
        for path in ("/", "/healthz", "/ping", "/metrics", "/docs", "/openapi.json"):
            assert server.get(path).status_code == 200, path
        assert "plaza_failover_repair_progress_ratio 1.0\n" in server.get("/metrics").text, "an alert means a repair"
        until(lambda: _ready(server))
        assert server.get("/", accept="text/html").headers["location"] == "/app"
        assert server.get("/").json()["name"] == "Plaza"
        checked = plaza(tmp_path / "var", "doctor")
        assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
        assert f"Process {server.process.pid} runs in this data directory." in checked.stdout
        (tmp_path / "var" / "api-key").chmod(0o644)
        assert plaza(tmp_path / "var", "doctor").returncode == 1


async def test_a_server_runs_although_stdout_is_closed() -> None:
    await run_program(
        """
        import os, sys
        from plaza.core.telemetry import configure_logs
        from plaza.serve import print_safely

        configure_logs()
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, sys.stdout.fileno())
        print_safely("Plaza is running.")
        print_safely("Plaza is still running.")
        """
    )


def test_a_signal_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    starts = [(signal.SIGINT, "1"), (signal.SIGTERM, "2"), (signal.SIGHUP, "1")]
    for count, (sig, workers) in enumerate(starts, 1):
        with serving(tmp_path / "var", PLAZA_WORKERS=workers) as server:
            assert redis_client(tmp_path / "var").incr("starts") == count
            assert server.stop(sig) == 0


def test_under_nohup_sighup_is_ignored(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "var", nohup=True).wait_for("Ctrl-C stops it.")
    server.send(signal.SIGHUP)
    assert server.get("/ping").status_code == 200
    assert server.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_at_a_terminal_stops_valkey_last(tmp_path: Path, workers: str) -> None:
    """A terminal sends SIGINT to the whole process group."""
    with serving(tmp_path / "var", PLAZA_WORKERS=workers) as server:
        assert server.stop(signal.SIGINT, group=True) == 0
        assert "died" not in server.errors.read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_processes_of_a_killed_server_stop(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS=workers) as server:
        redis_client(tmp_path / "var").set("last", "word")
        assert len(server.children()) == (1 if workers == "1" else 4)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path / "var") as server:
        assert redis_client(tmp_path / "var").get("last") == "word"


def test_an_open_request_completes_before_shutdown(tmp_path: Path) -> None:
    responses: list[httpx.Response] = []
    with serving(tmp_path / "var") as server:
        valkey = server.valkey()
        valkey.suspend()
        request = threading.Thread(target=lambda: responses.append(server.get("/feed/explore")))
        request.start()
        until(lambda: _connections(server) == 1)
        server.send(signal.SIGTERM)
        until(lambda: not _listens(server.url))
        valkey.resume()
        request.join()
        assert server.wait() == 0
    assert (responses[0].status_code, responses[0].json()["posts"]) == (200, [])
    assert responses[0].headers["connection"] == "close"


@pytest.mark.parametrize(("signals", "waited"), [(1, True), (2, False)])
def test_shutdown_waits_for_a_slow_client_but_not_after_a_second_signal(
    tmp_path: Path, signals: int, waited: bool
) -> None:
    with serving(tmp_path / "var") as server, socket.socket() as client:
        client.connect(("127.0.0.1", httpx.URL(server.url).port))
        client.sendall(b"POST /auth/login HTTP/1.1\r\nhost: plaza\r\ncontent-length: 100\r\n\r\n{")
        until(lambda: _connections(server) == 1)
        for _ in range(signals):
            server.send(signal.SIGTERM)
            until(lambda: not _listens(server.url))
        assert server.wait() == 0
        assert ("timeout graceful shutdown exceeded" in server.errors.read_text()) is waited


def test_without_valkey_requests_fail_with_503_and_recover_when_it_is_back(tmp_path: Path) -> None:
    with serving(tmp_path / "var") as server:
        client = redis_client(tmp_path / "var")
        client.set("key", "value")
        client.execute_command("WAITAOF", 1, 0, 20_000)  # a busy disk may write up to two seconds later
        dead = server.valkey()
        dead.suspend()
        response = server.get("/readyz")
        assert response.status_code == 503
        assert response.headers["content-type"] == "application/problem+json"
        assert int(response.headers["retry-after"]) >= 1
        assert "valkey" in response.json()["checks"]
        assert server.get("/healthz").status_code == 200
        dead.kill()
        until(lambda: _ready(server))
        assert redis_client(tmp_path / "var").get("key") == "value"
        assert server.stop() == 0


def test_a_child_process_that_dies_is_restarted(tmp_path: Path) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS="2") as server:
        for role, count, sig in (("plaza-api", 2, signal.SIGTERM), ("plaza-worker", 1, signal.SIGKILL)):
            victim = server.children(role)[0]
            victim.send_signal(sig)
            until(lambda role=role, count=count, pid=victim.pid: _others(server, role, pid) == count)  # type: ignore[misc]
            until(lambda: _ready(server))
        assert len(server.children("plaza-api")) == 2
        assert server.stop() == 0


def test_metrics_of_all_processes_are_summed(tmp_path: Path) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS="2") as server:
        for _ in range(20):
            server.get("/ping")
        until(lambda: _counted(server, "/ping") == ["20.0"])  # counted after the response is sent
        (folder,) = {
            Path(file.path).parent for file in server.children("plaza-api")[0].memory_maps() if ".db" in file.path
        }
        assert server.stop() == 0
        assert not folder.exists()


def test_a_failed_start_of_a_child_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "plaza.sqlite").write_text("This is no database, and long enough to be looked at.")
    refused = plaza(tmp_path / "var", "serve", PLAZA_WORKERS="2")
    message = f"plaza: {tmp_path}/var/plaza.sqlite cannot be used: file is not a database. Restore a backup."
    assert set(refused.stderr.splitlines()) == {message}, "every child may print it"
    assert refused.returncode == 2, "so that systemd does not restart it"


def test_a_configured_valkey_is_used_and_not_stopped(tmp_path: Path, server: Server) -> None:
    with serving(tmp_path / "var", PLAZA_VALKEY_URL=server.url) as own:
        assert own.children() == []
        assert not (tmp_path / "var" / "valkey").exists()
        assert f"Valkey  127.0.0.1:{server.port}" in own.printed()
        until(lambda: _ready(own))
        assert own.stop() == 0
    with server.redis_client() as client:
        assert client.ping(), "a configured Valkey keeps running"


def test_no_secret_is_printed_and_a_short_api_key_is_reported(tmp_path: Path, server: Server) -> None:
    url = f"valkey://default:hush@127.0.0.1:{server.port}"
    with server.redis_client() as client:
        client.config_set("requirepass", "hush")
        try:
            with serving(tmp_path / "var", PLAZA_VALKEY_URL=url, PLAZA_API_KEY="whisper") as own:
                assert own.stop() == 0
                message = own.errors.read_text()
                assert message.count("PLAZA_API_KEY is shorter than 16 characters") == 1
                for secret in ("hush", "whisper"):
                    assert secret not in own.printed() + message
        finally:
            client.config_set("requirepass", "")


def test_a_second_server_in_the_same_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with serving(tmp_path / "var") as server:
        refused = plaza(tmp_path / "var", "serve")
        assert refused.returncode == 2
        assert f"already running in {tmp_path}/var (process {server.process.pid})" in one_line(refused)
        until(lambda: _ready(server))


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = plaza(tmp_path / "var", "serve", PLAZA_PORT=port)
    assert refused.returncode == 2
    assert f"Port {port} of 127.0.0.1 is in use." in one_line(refused)
    assert not (tmp_path / "var").exists(), "nothing was started"


def test_a_plaza_that_is_older_than_the_data_is_not_ready_and_does_not_start(tmp_path: Path, server: Server) -> None:
    with serving(tmp_path / "var", PLAZA_VALKEY_URL=server.url) as old:
        with server.redis_client() as client:
            (library,) = client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "plaza_limits_*")
            name = library["library_name"]
            newer = name.replace(f"_g{GENERATION}_", f"_g{GENERATION + 1}_")
            function = "redis.register_function('newer', function() end)"
            client.execute_command("FUNCTION", "LOAD", f"#!lua name={newer}\n{function}")
            client.execute_command("FUNCTION", "DELETE", name)
        response = old.get("/readyz")
        assert (response.status_code, response.json()["code"]) == (503, "outdated")
        assert "Install its version here" in response.json()["detail"]
        assert old.get("/healthz").status_code == 200
        refused = plaza(tmp_path / "other", "serve", PLAZA_VALKEY_URL=server.url)
    assert refused.returncode == 2, "so that systemd does not restart it"
    assert "Install its version here" in one_line(refused)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("PLAZA_PORT", "eighty", "PLAZA_PORT must be a whole number."),
        ("PLAZA_HOST", "203.0.113.1", "PLAZA_HOST 203.0.113.1 is not an address of this machine."),
        ("PLAZA_VALKEY_URL", "http://127.0.0.1", "PLAZA_VALKEY_URL: A Valkey URL cannot start with 'http'"),
        ("PLAZA_DATABASE_URL", "mysql://db", "PLAZA_DATABASE_URL must look like postgresql://"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_line(tmp_path: Path, setting: str, value: str, message: str) -> None:
    refused = plaza(tmp_path / "var", "serve", **{setting: value})
    assert message in one_line(refused)
    assert refused.returncode == 2


def test_an_unreachable_valkey_is_reported_in_one_line(tmp_path: Path) -> None:
    refused = plaza(tmp_path / "var", "serve", PLAZA_VALKEY_URL="valkey://127.0.0.1:1")
    assert "Valkey at 127.0.0.1:1 cannot be reached" in one_line(refused)
    assert refused.returncode == 1, "unlike a wrong setting, it may be up at the next try"


def test_damaged_data_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    plaza(with_tables(tmp_path / "var"), "token", "ana")
    file = tmp_path / "var" / "valkey" / "appendonlydir" / "appendonly.aof.1.incr.aof"
    file.write_bytes(b"XXXX" + file.read_bytes())
    refused = plaza(tmp_path / "var", "serve")
    assert "Valkey cannot read its data" in one_line(refused)
    assert refused.returncode == 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_damage_found_at_runtime_stops_the_server_with_the_reason(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS=workers) as server:
        file = tmp_path / "var" / "valkey" / "appendonlydir" / "appendonly.aof.1.incr.aof"
        file.write_bytes(b"XXXX" + file.read_bytes())
        server.descendants = server.children()
        server.valkey().kill()
        assert server.wait() == 1
        assert "plaza: Valkey cannot read its data" in server.errors.read_text()


def test_an_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    for workers in ("1", "2"):
        server = ServerProcess(tmp_path / "var", "serve", PLAZA_WORKERS=workers)
        until(lambda server=server: server.children("valkey-server"))  # type: ignore[misc]
        assert server.stop(signal.SIGINT) in (0, 130)


def test_the_first_admin_is_created_while_a_server_runs(tmp_path: Path) -> None:
    ana = {"username": "ana", "password": "a long enough word"}
    with serving(tmp_path / "var") as server:
        assert httpx.post(f"{server.url}/auth/register", json=ana, timeout=TIME_LIMIT_SECONDS).status_code == 201
        made = plaza(tmp_path / "var", "users", "role", "ana", "admin")
        assert made.stdout.startswith("ana is now admin")
        assert redis_client(tmp_path / "var").hget("user:ana", "role") == "admin"
        login = httpx.post(f"{server.url}/auth/login", json=ana, timeout=TIME_LIMIT_SECONDS).json()
        assert claims(login["access_token"])["role"] == "admin"
        assert claims(plaza(tmp_path / "var", "token", "ana").stdout)["role"] == "admin"
        assert claims(plaza(tmp_path / "var", "token", "ana", "--role", "model").stdout)["role"] == "model"
        assert server.stop() == 0
    assert claims(plaza(tmp_path / "var", "token", "ana").stdout)["role"] == "admin", "also while no server runs"


def test_a_role_for_a_missing_user_is_refused_in_one_line(tmp_path: Path, server: Server) -> None:
    """Uses a configured Valkey, so that none is started."""
    (tmp_path / "var").mkdir()
    refused = plaza(with_tables(tmp_path / "var"), "users", "role", "missing", "admin", PLAZA_VALKEY_URL=server.url)
    assert refused.returncode == 1
    assert "No user has this name." in one_line(refused)
    assert not (tmp_path / "var" / "valkey").exists()


def test_the_server_accepts_a_token_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    from plaza.core.auth import Auth
    from plaza.core.settings import Settings

    token = plaza(with_tables(tmp_path / "var"), "token", "ana", "--role", "admin").stdout.strip()
    actor = Auth(Settings(data_dir=tmp_path / "var")).actor({"authorization": f"Bearer {token}"})
    assert actor is not None
    assert (actor.name, actor.role) == ("ana", "admin")


def test_an_invalid_username_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = plaza(tmp_path / "var", "token", "not a name")
    assert "username must be 1 to 30 of" in one_line(refused)
    assert refused.returncode == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_runs_a_worker_too(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS=workers) as server:
        until(lambda: redis_client(tmp_path / "var").exists("job:core.libraries"))
        assert server.stop() == 0
        assert "worker_stopped" in server.errors.read_text()


def test_a_worker_uses_the_valkey_of_a_running_server(tmp_path: Path) -> None:
    with serving(tmp_path / "var"):
        worker = ServerProcess(tmp_path / "var", "worker").wait_for("The worker is running.")
        assert worker.children() == []
        assert worker.stop() == 0


def test_a_worker_without_a_valkey_reports_it(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    refused = plaza(with_tables(tmp_path / "var"), "worker")
    assert f"No server runs in {tmp_path}/var" in one_line(refused)
    assert refused.returncode == 2


def test_keys_are_printed_as_table_markdown_and_json(tmp_path: Path) -> None:
    assert "plaza:libraries" in plaza(tmp_path / "var", "keys").stdout
    assert "### `plaza:libraries`" in plaza(tmp_path / "var", "keys", "--markdown").stdout
    records = json.loads(plaza(tmp_path / "var", "keys", "--json").stdout)
    assert "plaza:libraries" in [record["pattern"] for record in records]
    assert not (tmp_path / "var").exists()


def test_a_closed_output_pipe_is_not_an_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -u -m plaza keys --json | head -n 1"
    seen = subprocess.run(command, shell=True, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert seen.stdout == "[\n"
    assert seen.stderr == ""


@pytest.mark.parametrize("command", [["serve"], ["worker"], ["keys"], ["token"], ["users", "role"]])
def test_every_command_has_help_with_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*command, "--help"])
    assert ended.value.code == 0
    assert "example:\n  " in capsys.readouterr().out


def _ready(server: ServerProcess) -> bool:
    """Return whether the server is ready. A busy machine may need several tries."""
    return server.get("/readyz").status_code == 200


def _counted(server: ServerProcess, route: str) -> list[str]:
    lines = [line for line in server.get("/metrics").text.splitlines() if f'route="{route}"' in line]
    return [line.rsplit(" ", 1)[1] for line in lines if line.startswith("plaza_http_requests_total")]


def _others(server: ServerProcess, role: str, pid: int) -> int:
    return sum(1 for process in server.children(role) if process.pid != pid)


def _connections(server: ServerProcess) -> int:
    import psutil

    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(1 for connection in found if connection.status == psutil.CONN_ESTABLISHED)


def _listens(url: str) -> bool:
    port = httpx.URL(url).port
    assert port is not None
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
