"""What `pytest --server` does about programs that are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import servers

CHOSEN = pytest.mark.parametrize(
    ("server", "package"), [(servers.POSTGRESQL_15, "postgresql-15"), (servers.PGBOUNCER, "pgbouncer")]
)


@dataclass
class Machine:
    """
    A machine without any of the programs.

    :param policy: the file that keeps services from being started.
    :param ran: the commands that would install the programs, and whether services were kept from starting.
    :param code: how they end.
    """

    policy: Path
    ran: list[tuple[list[str], bool]] = field(default_factory=list)
    code: int = 0

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """Note a command."""
        self.ran.append((command, self.policy.exists() and "exit 101" in self.policy.read_text()))
        return subprocess.CompletedProcess(command, self.code, "", "E: no such package")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A machine on which root has nothing installed."""
    made = Machine(tmp_path / "policy-rc.d")
    monkeypatch.setattr(servers, "_POLICY", made.policy)
    monkeypatch.setattr(servers, "_postgresql_15", lambda: None)
    monkeypatch.setattr(servers, "_pgbouncer", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", made.run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


@CHOSEN
def test_root_installs_what_is_missing(machine: Machine, server: str, package: str) -> None:
    servers.ensure_installed(server)
    assert [command[:2] for command, _ in machine.ran] == [["apt-get", "update"], ["apt-get", "install"]]
    assert machine.ran[1][0][-1] == package
    assert [kept for _, kept in machine.ran] == [True, True]
    assert not machine.policy.exists(), "the machine's own services may not be started any more"


@CHOSEN
def test_others_are_told_what_to_install(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, server: str, package: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(servers.MissingError, match=f"apt-get install .*{package}"):
        servers.ensure_installed(server)
    assert machine.ran == []


def test_what_cannot_be_installed_is_said(machine: Machine) -> None:
    machine.code = 100
    with pytest.raises(servers.MissingError, match="no such package"):
        servers.ensure_installed(servers.POSTGRESQL_15)
    assert len(machine.ran) == 1
    assert not machine.policy.exists()


def test_a_policy_of_the_machine_s_own_stays(machine: Machine) -> None:
    machine.policy.write_text("#!/bin/sh\nexit 101 # ours\n")
    servers.ensure_installed(servers.PGBOUNCER)
    assert machine.policy.read_text().endswith("# ours\n")


def test_the_embedded_server_needs_nothing(machine: Machine) -> None:
    servers.ensure_installed(servers.EMBEDDED)
    assert machine.ran == []
