"""PostgreSQL keeps every promise of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.append_once import AppendOncePartitionContract, AppendOnceSliceContract
from tests.contract.checks import ChecksContract
from tests.contract.columns import ColumnsContract, NamesContract
from tests.contract.delete_insert import DeleteInsertContract
from tests.contract.keys import KeysContract
from tests.contract.ledger import LedgerContract
from tests.contract.merge import MergeContract
from tests.contract.query import QueryContract
from tests.contract.refusals import RefusalContract
from tests.contract.time_partitions import TimePartitionContract
from tests.contract.value_partitions import ValuePartitionContract

if TYPE_CHECKING:
    from tests.contract.postgres import PostgresWarehouse


class OneDriver:
    """By psycopg 3: what is asked here is the server's to answer."""

    @pytest.fixture
    def warehouse(self, postgres: PostgresWarehouse) -> PostgresWarehouse:
        """The warehouse."""
        return postgres


class EachDriver:
    """By each driver: values, types, row counts and errors pass through it."""

    @pytest.fixture
    def warehouse(self, postgres: PostgresWarehouse, driver: str) -> PostgresWarehouse:
        """The warehouse, reached by each driver."""
        return postgres


class TestDeleteInsert(EachDriver, DeleteInsertContract):
    """See the contract."""


class TestMerge(OneDriver, MergeContract):
    """See the contract."""


class TestAppendOncePartition(OneDriver, AppendOncePartitionContract):
    """See the contract."""


class TestAppendOnceSlice(EachDriver, AppendOnceSliceContract):
    """See the contract."""


class TestTimePartitions(EachDriver, TimePartitionContract):
    """See the contract."""


class TestValuePartitions(EachDriver, ValuePartitionContract):
    """See the contract."""


class TestKeys(OneDriver, KeysContract):
    """See the contract."""


class TestColumns(OneDriver, ColumnsContract):
    """See the contract."""


class TestNames(EachDriver, NamesContract):
    """See the contract."""


class TestQuery(EachDriver, QueryContract):
    """See the contract."""


class TestRefusals(OneDriver, RefusalContract):
    """See the contract."""


class TestChecks(OneDriver, ChecksContract):
    """See the contract."""


class TestLedger(OneDriver, LedgerContract):
    """See the contract."""
