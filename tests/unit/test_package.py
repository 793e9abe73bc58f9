"""What the package promises before any of its operators runs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import jsonschema
import pytest

import airflow_safe_ops
from airflow_safe_ops.provider_info import get_provider_info

DRIVERS = ("asyncpg", "databricks", "psycopg", "psycopg2")
HEAVY = (*DRIVERS, "numpy", "pandas", "pyarrow", "airflow.jobs", "airflow.models", "airflow.utils.db")

MODULES = sorted(
    module.name
    for module in walk_packages(airflow_safe_ops.__path__, "airflow_safe_ops.")
    if not module.name.endswith("__main__")
)


def newly_imported(first: str, then: str) -> set[str]:
    """The modules that `then` adds in a fresh interpreter to what `first` has imported."""
    script = (
        f"import sys\n{first}\nbefore = set(sys.modules)\n{then}\n"
        "print(chr(10) + chr(10).join(sorted(set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ran.stdout.split())


def of(roots: tuple[str, ...], modules: set[str]) -> list[str]:
    return sorted(name for name in modules if f"{name}.".startswith(tuple(f"{root}." for root in roots)))


def airflow_schema(name: str) -> Any:
    spec = find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    return json.loads(Path(spec.origin).with_name(name).read_text(encoding="utf-8"))


def test_provider_info_is_valid_for_the_installed_airflow() -> None:
    jsonschema.Draft7Validator(airflow_schema("provider_info.schema.json")).validate(get_provider_info())


def test_provider_info_speaks_of_modules_that_are_there() -> None:
    info = get_provider_info()
    named = [module for operators in info["operators"] for module in operators["python-modules"]]
    named += [path.rpartition(".")[0] for path in info["cli"]]
    assert [module for module in named if find_spec(module) is None] == []


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    (ours,) = distribution("airflow-safe-ops").entry_points.select(group="apache_airflow_provider")
    assert ours.load() is get_provider_info
    assert get_provider_info()["package-name"] == "airflow-safe-ops"


def test_one_version() -> None:
    assert version("airflow-safe-ops") == airflow_safe_ops.__version__
    assert get_provider_info()["versions"][0] == airflow_safe_ops.__version__


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name: str) -> None:
    assert import_module(name).__doc__


@pytest.mark.parametrize("name", airflow_safe_ops.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(airflow_safe_ops, name) is not None
    assert name in dir(airflow_safe_ops)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = airflow_safe_ops.Nothing


def test_importing_the_package_imports_no_airflow_and_no_driver() -> None:
    loaded = newly_imported("", "import airflow_safe_ops")
    assert of((*HEAVY, "airflow", "sqlalchemy", "sqlparse"), loaded) == []


def test_the_public_names_import_nothing_heavy() -> None:
    """Airflow itself imports some of its models; the names of this package must add nothing to that."""
    loaded = newly_imported(
        "import airflow.sdk, airflow.providers.common.sql.operators.sql", "from airflow_safe_ops import *"
    )
    assert "airflow_safe_ops.operators.load" in loaded
    assert of(HEAVY, loaded) == []
