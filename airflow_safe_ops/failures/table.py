"""
The rules of the package, in the order in which they are asked.

Sources: appendix A of PostgreSQL's manual; MySQL's and MariaDB's server and client error references; SQLite's result
codes; Databricks' error conditions and the ``termination_details.code`` of its Jobs API; RFC 9110 and 6585 for HTTP.
Exact codes stand before classes of codes, and what an error carries counts before its name, its name before its words.
"""

from __future__ import annotations

from airflow_safe_ops.errors import FailureClass
from airflow_safe_ops.failures.rules import Rule

TRANSIENT, CONTENTION, RESOURCE = FailureClass.TRANSIENT, FailureClass.CONTENTION, FailureClass.RESOURCE
LATE_INPUT, PERMISSION = FailureClass.LATE_INPUT, FailureClass.PERMISSION
CONTRACT, DATA = FailureClass.CONTRACT, FailureClass.DATA
CANCELLED, UNKNOWN = FailureClass.CANCELLED, FailureClass.UNKNOWN


def _codes(kind: str, failure: FailureClass, reason: str, codes: str, *, to_do: str = "", message: str = "") -> Rule:
    return Rule(failure, reason, to_do, codes=tuple(f"{kind}:{code}" for code in codes.split()), message=message)


def _named(
    failure: FailureClass,
    reason: str,
    names: str,
    *,
    to_do: str = "",
    message: str = "",
    is_direct: bool = False,
    is_wrapper: bool = False,
) -> Rule:
    known = tuple(names.split())
    return Rule(failure, reason, to_do, (), known, message, is_direct=is_direct, is_wrapper=is_wrapper)


_WHOLE_UNIT = "Nothing, if it passes: the whole unit is tried again, since its transaction was rolled back."
_LIBPQ = "psycopg.OperationalError psycopg2.OperationalError"

MYSQL = (
    _codes("mysql", CONTENTION, "a lock was not given in time", "1205 3572", to_do=_WHOLE_UNIT),
    _codes("mysql", CONTENTION, "a deadlock was broken", "1213 1614", to_do=_WHOLE_UNIT),
    _codes("mysql", CONTENTION, "another transaction changed the rows first", "1020 3101 1180", to_do=_WHOLE_UNIT),
    _codes("mysql", TRANSIENT, "the connection was refused or lost", "2002 2003 2006 2013 2055 4031"),
    _codes("mysql", TRANSIENT, "the server or the network went away",
        "1053 1077 1079 1080 1047 1158 1159 1160 1161 1927"),
    _codes("mysql", RESOURCE, "too many connections, or a limit of the account", "1040 1203 1226"),
    _codes("mysql", RESOURCE, "disk, memory or a table of the server is full", "1021 1037 1038 1041 1114 1135 1206"),
    _codes("mysql", CANCELLED, "the statement was killed or took longer than its limit", "1317 3024 1969 1028"),
    _codes("mysql", PERMISSION, "the login is refused", "1044 1045 1698 1129 1130 1251 1820 1862 2049"),
    _codes("mysql", PERMISSION, "the login lacks a right", "1142 1143 1227 1370 3118"),
    _codes("mysql", CONTRACT, "the server or session only reads", "1290 1792 1836",
        to_do="Point the connection at the primary."),
    _codes("mysql", CONTRACT, "the server does not know a name or the statement",
        "1049 1051 1054 1064 1109 1136 1146 1222 1305 2005"),
    _codes("mysql", DATA, "a unique key stands there already", "1062 1169 1586"),
    _codes("mysql", DATA, "a constraint refuses the rows", "1048 1216 1217 1364 1451 1452 3819 4025"),
    _codes("mysql", DATA, "a value does not fit", "1242 1264 1265 1292 1365 1366 1406 1411 1690 3140"),
)  # fmt: skip

SQLSTATES = (
    _codes("sqlstate", CONTENTION, "it could not be put in one order with what others committed", "40001 2D521",
        to_do=_WHOLE_UNIT),
    _codes("sqlstate", CONTENTION, "a deadlock was broken", "40P01", to_do=_WHOLE_UNIT),
    _codes("sqlstate", CONTENTION, "a lock was not given in time", "55P03", to_do=_WHOLE_UNIT),
    _codes("sqlstate", CONTENTION, "another session uses or changed it", "55006 72000", to_do=_WHOLE_UNIT),
    _codes("sqlstate", DATA, "a constraint refuses the transaction", "40002"),
    _codes("sqlstate", CONTENTION, "the transaction was rolled back by the server", "40*", to_do=_WHOLE_UNIT),
    _codes("sqlstate", TRANSIENT, "the connection was refused or lost", "08* HV00N"),
    _codes("sqlstate", TRANSIENT, "the server shut down, crashed, starts up, or an administrator ended the session",
        "57P01 57P02 57P03"),
    _codes("sqlstate", TRANSIENT, "the server ended a session that was idle or open too long", "25P03 25P04 57P05"),
    _codes("sqlstate", CANCELLED, "the statement was cancelled, by a person or by its time limit", "57014"),
    _codes("sqlstate", CONTRACT, "the database does not exist", "57P04 3D000"),
    _codes("sqlstate", RESOURCE, "the server's disk is full", "53100"),
    _codes("sqlstate", RESOURCE, "the server is out of memory", "53200"),
    _codes("sqlstate", RESOURCE, "the server has no connection left", "53300"),
    _codes("sqlstate", RESOURCE, "the server lacks a resource", "53*"),
    _codes("sqlstate", TRANSIENT, "the server could not read or write its files", "58030"),
    _codes("sqlstate", PERMISSION, "the login or role is refused", "28* 0L* 0P*"),
    _codes("sqlstate", PERMISSION, "the login lacks a right", "42501"),
    _codes("sqlstate", CONTRACT, "the server or session only reads", "25006",
        to_do="Point the connection at the primary."),
    _codes("sqlstate", CONTRACT, "a table, column, function or schema does not exist", "42P01 42883 42703 3F000"),
    _codes("sqlstate", CONTRACT, "the server refuses the statement as it stands",
        "42* 0A* 07* 20* 24* 25000 25001 25P01 26* 2B* 34* 3B* 54* 55* F0* 56*"),
    _codes("sqlstate", DATA, "a unique key stands there already", "23505"),
    _codes("sqlstate", DATA, "a constraint refuses the rows", "23*"),
    _codes("sqlstate", DATA, "a value does not fit", "22*"),
    _codes("sqlstate", DATA, "rows lie outside what the statement may write", "44*"),
    _codes("sqlstate", DATA, "more or other rows were found than the statement allows", "21* 27*"),
    _codes("sqlstate", DATA, "a function or trigger refuses the rows", "P0001 P0002 P0003 P0004"),
    _codes("sqlstate", DATA, "the server found damaged data", "XX001 XX002",
        to_do="Call the database's administrator."),
)  # fmt: skip

SQLITE = (
    _codes("sqlite", CONTENTION, "the file is locked by another connection",
        "SQLITE_BUSY* SQLITE_LOCKED* SQLITE_PROTOCOL SQLITE_SCHEMA",
        to_do=_WHOLE_UNIT),
    _codes("sqlite", RESOURCE, "disk or memory does not do", "SQLITE_FULL SQLITE_NOMEM SQLITE_IOERR*"),
    _codes("sqlite", PERMISSION, "the file may not be written", "SQLITE_READONLY* SQLITE_PERM SQLITE_AUTH*"),
    _codes("sqlite", DATA, "a constraint refuses the rows", "SQLITE_CONSTRAINT* SQLITE_MISMATCH SQLITE_TOOBIG"),
    _codes("sqlite", DATA, "the file is damaged or is no database", "SQLITE_CORRUPT* SQLITE_NOTADB"),
    _codes("sqlite", CANCELLED, "the statement was interrupted", "SQLITE_INTERRUPT SQLITE_ABORT*"),
    _codes("sqlite", CONTRACT, "the statement or the file's path is wrong",
        "SQLITE_ERROR* SQLITE_CANTOPEN* SQLITE_MISUSE SQLITE_RANGE"),
)  # fmt: skip

DATABRICKS = (
    _codes("databricks", CONTENTION, "another commit to the table came first", """
        DELTA_CONCURRENT_* *_CONCURRENT_* CONCURRENT_* DELTA_PROTOCOL_CHANGED DELTA_METADATA_CHANGED""",
        to_do=_WHOLE_UNIT),
    _codes("databricks", DATA, "rows lie outside what the statement may replace", "DELTA_REPLACE_WHERE_MISMATCH"),
    _codes("databricks", DATA, "a merge found a key more than once", """
        DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE MERGE_CARDINALITY_VIOLATION"""),
    _codes("databricks", DATA, "a constraint refuses the rows", """
        DELTA_VIOLATE_CONSTRAINT* DELTA_NOT_NULL_CONSTRAINT_VIOLATED DELTA_EXCEED_CHAR_VARCHAR_LIMIT"""),
    _codes("databricks", DATA, "a value does not fit", """
        CAST_* DIVIDE_BY_ZERO ARITHMETIC_OVERFLOW NUMERIC_VALUE_OUT_OF_RANGE DATETIME_OVERFLOW CANNOT_PARSE_*
        INVALID_ARRAY_INDEX*"""),
    _codes("databricks", PERMISSION, "the login is refused or lacks a right", """
        INSUFFICIENT_PERMISSIONS* PERMISSION_DENIED *_PERMISSION_DENIED UNAUTHORIZED* UNAUTHENTICATED
        INVALID_ACCESS_TOKEN"""),
    _codes("databricks", CONTRACT, "the server does not know a name or the statement", """
        TABLE_OR_VIEW_NOT_FOUND SCHEMA_NOT_FOUND NO_SUCH_* UNRESOLVED_* PARSE_* DATATYPE_MISMATCH* DELTA_SCHEMA_*
        DELTA_TABLE_NOT_FOUND DELTA_MERGE_UNRESOLVED_EXPRESSION ROUTINE_NOT_FOUND"""),
    _codes("databricks", TRANSIENT, "the service did not answer as it should", """
        TEMPORARILY_UNAVAILABLE SERVICE_UNAVAILABLE DEADLINE_EXCEEDED INTERNAL_ERROR"""),
    _codes("databricks", RESOURCE, "a limit of the workspace", """
        REQUEST_LIMIT_EXCEEDED RESOURCE_EXHAUSTED RESOURCE_LIMIT_EXCEEDED *QUOTA_EXCEEDED"""),
    _codes("run", TRANSIENT, "the run's cluster, driver or platform failed", """
        CLOUD_FAILURE CLUSTER_ERROR DRIVER_ERROR INTERNAL_ERROR REPOSITORY_CHECKOUT_FAILED STORAGE_ACCESS_ERROR"""),
    _codes("run", RESOURCE, "a limit of the workspace", "*_LIMIT_EXCEEDED MAX_* MAXIMUM_CONCURRENT_RUNS_REACHED"),
    _codes("run", PERMISSION, "the run may not use what it asked for", "UNAUTHORIZED_ERROR"),
    _codes("run", CONTRACT, "the run is configured in a way that cannot start", """
        INVALID_CLUSTER_REQUEST INVALID_RUN_CONFIGURATION FEATURE_DISABLED RESOURCE_NOT_FOUND DISABLED
        BREAKING_CHANGE LIBRARY_INSTALLATION_ERROR"""),
    _codes("run", CANCELLED, "the run was cancelled, or took longer than its limit", "CANCELED USER_CANCELED TIMEDOUT"),
)  # fmt: skip

NETWORK = (
    _codes("aws", RESOURCE, "the service asks for fewer requests", """
        *Throttl* *LimitExceeded* *ThroughputExceeded* TooManyRequests* SlowDown"""),
    _codes("aws", PERMISSION, "the login is refused or lacks a right", """
        AccessDenied* ExpiredToken* Unauthorized* InvalidClientTokenId UnrecognizedClientException InvalidAccessKeyId
        SignatureDoesNotMatch"""),
    _codes("aws", TRANSIENT, "the service failed or is overloaded", "RequestTimeout* Internal* ServiceUnavailable*"),
    _codes("http", RESOURCE, "the server asks for fewer requests", "403",
        message=r"(?i)rate ?limit|quota ?exceeded|usage ?limits"),
    _codes("http", RESOURCE, "the server asks for fewer requests, or is full", "429 507 509",
        to_do="Ask less often: a pool for the tasks that call it."),
    _codes("http", PERMISSION, "the server refuses the login or the right", "401 403 407 511"),
    _codes("http", TRANSIENT, "the server did not wait, or was not ready", "408 425"),
    _codes("http", CONTENTION, "the resource is locked", "423"),
    _codes("http", CONTRACT, "there is nothing at this address", "404 410"),
    _codes("http", CONTRACT, "the request conflicts with what is there", "409",
        to_do="Look what the earlier request did; a repeated one wants a new id."),
    _codes("http", CONTRACT, "the server understands the request and refuses what is in it", "422"),
    _codes("http", CONTRACT, "the server does not know this kind of request", "501 505"),
    _codes("http", TRANSIENT, "the server failed or is overloaded", "5*"),
    _codes("http", CONTRACT, "the server refuses the request as it stands", "4*"),
    _codes("dns", TRANSIENT, "the name server did not answer", "EAI_AGAIN EAI_SYSTEM EAI_MEMORY"),
    _codes("dns", CONTRACT, "the host's name does not exist", "*", to_do="Correct the host of the connection."),
    _codes("tls", PERMISSION, "the certificate is not trusted", "*CERTIFICATE* *UNKNOWN_CA*",
        to_do="Renew the certificate, or trust its issuer."),
    _codes("tls", TRANSIENT, "the connection was cut", "UNEXPECTED_EOF*"),
    _codes("tls", CONTRACT, "client and server do not speak the same TLS", "*"),
    _codes("errno", TRANSIENT, "the network or the other side is not there", """
        ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENETRESET
        ENOTCONN EINTR"""),
    _codes("errno", RESOURCE, "the disk is full, or the quota used up", "ENOSPC EDQUOT"),
    _codes("errno", RESOURCE, "the machine has no file, memory, process or port left",
        "EMFILE ENFILE ENOMEM EAGAIN ENOBUFS EADDRNOTAVAIL"),
    _codes("errno", TRANSIENT, "the disk or a network file system did not answer", "EIO ESTALE"),
    _codes("errno", PERMISSION, "the file or socket may not be used", "EACCES EPERM EROFS"),
    _codes("errno", CONTRACT, "the path is another kind of thing", "EISDIR ENOTDIR ENAMETOOLONG EEXIST"),
)  # fmt: skip

NAMES = (
    _named(PERMISSION, "the login is refused", _LIBPQ,
        message=r"password authentication failed|no pg_hba\.conf entry|no password supplied"),
    _named(PERMISSION, "the login is refused", _LIBPQ,
        message=r"role \".*\" (?:does not exist|is not permitted)"),
    _named(PERMISSION, "the certificate is not trusted", _LIBPQ,
        message=r"certificate verify failed|server certificate|unknown ca"),
    _named(CONTRACT, "the database does not exist", _LIBPQ, message=r"database \".*\" does not exist"),
    _named(RESOURCE, "the server has no connection left", _LIBPQ,
        message=r"too many (?:clients|connections)|remaining connection slots"),
    _named(CONTRACT, "the host's name does not exist", _LIBPQ,
        to_do="Correct the host of the connection.",
        message=r"Name or service not known|No address associated|nodename nor servname"),
    _named(CONTRACT, "client and server do not speak the same TLS", _LIBPQ, message=r"server does not support SSL"),
    _named(CONTRACT, "the pool refuses what the connection asks for", _LIBPQ, message=r"unsupported startup parameter"),
    _named(TRANSIENT, "the connection was refused or lost", _LIBPQ),
    _named(TRANSIENT, "the connection was lost", "psycopg2.InterfaceError psycopg.InterfaceError",
        message=r"connection (?:is|already) closed"),
    _named(RESOURCE, "the pool has no connection left", """
        psycopg_pool.PoolTimeout psycopg_pool.TooManyRequests sqlalchemy.TimeoutError"""),
    _named(TRANSIENT, "the connection was lost", "airflow_safe_ops.ConnectionLostError"),
    _named(CONTRACT, "the address or a header is wrong", """
        httpx.UnsupportedProtocol httpx.InvalidURL httpx.LocalProtocolError httpx.TooManyRedirects requests.InvalidURL
        requests.MissingSchema requests.InvalidSchema requests.TooManyRedirects"""),
    _named(RESOURCE, "the pool has no connection left", "httpx.PoolTimeout"),
    _named(TRANSIENT, "the network or the other side is not there", "httpx.TransportError httpx.TimeoutException"),
    _named(TRANSIENT, "the network or the other side is not there", """
        requests.ConnectionError requests.Timeout requests.ChunkedEncodingError requests.ContentDecodingError"""),
    _named(TRANSIENT, "the network or the other side is not there", """
        urllib3.TimeoutError urllib3.ProtocolError urllib3.NewConnectionError urllib3.IncompleteRead
        urllib3.ProxyError"""),
    _named(TRANSIENT, "the network or the other side is not there", """
        aiohttp.ClientConnectionError aiohttp.ClientPayloadError aiohttp.ServerTimeoutError http.IncompleteRead
        http.RemoteDisconnected"""),
    _named(TRANSIENT, "the service did not answer as it should", """
        databricks.SessionAlreadyClosedError databricks.RequestError"""),
    _named(TRANSIENT, "the network or the other side is not there", """
        ssl.SSLEOFError ssl.SSLZeroReturnError builtins.ConnectionError builtins.TimeoutError"""),
    _named(LATE_INPUT, "what a sensor waited for did not come in its time", "airflow.AirflowSensorTimeout"),
    _named(LATE_INPUT, "what a deferred task waited for did not come in its time", "airflow.TaskDeferralTimeout"),
    _named(CANCELLED, "the task took longer than its execution_timeout", "airflow.AirflowTaskTimeout"),
    _named(CANCELLED, "Airflow ended the task", "airflow.AirflowTaskTerminated"),
    _named(CANCELLED, "the task was skipped, which is no failure",
        "airflow.AirflowSkipException airflow.DownstreamTasksSkipped"),
    _named(CONTRACT, "Airflow does not know what the task names", """
        airflow.AirflowInactiveAssetInInletOrOutletException airflow.AirflowNotFoundException airflow.XComNotFound
        airflow.ParamValidationError airflow.TaskNotFound"""),
    _named(CONTRACT, "a template cannot be rendered", """
        jinja2.UndefinedError jinja2.TemplateSyntaxError jinja2.TemplateNotFound"""),
    _named(RESOURCE, "the worker is out of memory", "builtins.MemoryError"),
    _named(CANCELLED, "the process or the work in it was told to end", """
        builtins.KeyboardInterrupt builtins.SystemExit builtins.GeneratorExit asyncio.CancelledError
        concurrent.CancelledError"""),
    _named(PERMISSION, "the file or secret may not be used", "builtins.PermissionError"),
    _named(CONTRACT, "the code does not run as it stands", """
        builtins.ImportError builtins.SyntaxError builtins.NameError builtins.TypeError builtins.AttributeError
        builtins.NotImplementedError builtins.RecursionError""",
        to_do="Correct the code or install what it imports; another try runs the same code.",
        is_direct=True),
    _named(DATA, "what was read is not what was expected", """
        builtins.UnicodeError json.JSONDecodeError requests.JSONDecodeError""",
        is_direct=True),
    _named(DATA, "a constraint refuses the rows", "IntegrityError"),
    _named(DATA, "a value does not fit", "DataError"),
    _named(CONTRACT, "the database or its driver refuses the statement as it stands",
        "ProgrammingError NotSupportedError NoSuchTableError"),
    _named(CONTRACT, "its author says that another try does not help", "airflow.AirflowFailException", is_wrapper=True),
    _named(UNKNOWN, "something failed in the triggerer, which tells no more than that", "airflow.TaskDeferralError",
        to_do="Look at the triggerer's log; a trigger that sends to_event(error) keeps the class.",
        is_wrapper=True),
)  # fmt: skip

RULES: tuple[Rule, ...] = (*MYSQL, *DATABRICKS, *SQLSTATES, *SQLITE, *NETWORK, *NAMES)
