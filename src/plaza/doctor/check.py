"""The result of one check: a line of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. All but an `ok` one say how to fix it. Texts never contain secrets."""

    name: str
    state: State
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.state:<8} {self.name:<15} {self.text} {self.fix}".rstrip()


def ok(name: str, text: str) -> CheckResult:
    return CheckResult(name, "ok", text)


def warning(name: str, text: str, fix: str) -> CheckResult:
    """Something that works, and that an operator should know."""
    return CheckResult(name, "warning", text, fix)


def wrong(name: str, text: str, fix: str) -> CheckResult:
    return CheckResult(name, "wrong", text, fix)
