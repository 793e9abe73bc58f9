"""``airflow safe-ops policies``."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_safe_ops.cli.ledger_command import print_lines
from airflow_safe_ops.cli.planned_run import parsed_bundles
from airflow_safe_ops.cli.shell import fail, say, speaks
from airflow_safe_ops.compat import missing
from airflow_safe_ops.policies.review import Remark, listening, policy_settings
from airflow_safe_ops.report.policies import policies_text


@suppress_logs_and_warning
@speaks
def policies(args: Namespace) -> None:
    """Parse the DAGs and print what each rule says of them."""
    for problem in policy_settings().problems:
        say(str(problem))
    for feature in missing():
        say(f"This Airflow has no {feature}. {feature.without}")
    seen: set[str] = set()
    tags: set[str] = set()
    broken: dict[str, str] = {}
    with listening() as heard:
        for bag in parsed_bundles(args.dag_id, args.bundle_name):
            seen |= set(bag.dags)
            tags |= {tag for dag in bag.dags.values() for tag in dag.tags or ()}
            broken |= bag.import_errors
    seen |= {remark.dag_id for remark in heard}
    if args.dag_id and args.dag_id not in seen:
        fail(f"There is no Dag {args.dag_id!r}. `airflow dags list` shows those that are there.")
    for file, error in broken.items():
        say(f"{file} does not parse: {error.strip().rpartition(chr(10))[2]}")
    for exception in policy_settings().exceptions if args.dag_id is None else ():
        if exception.tag not in tags:
            say(f"No Dag has the tag {exception.tag!r} of an exception ({exception.reason}); it can be taken away.")
    lines = [_line(remark) for remark in dict.fromkeys(heard) if args.dag_id in (None, remark.dag_id)]
    if args.output != "table":
        print_lines(lines, args.output)
    else:
        print(policies_text(lines) or "No rule has anything to say.")
        named = len({line["dag_id"] for line in lines})
        say(f"\n{len(lines)} remarks on {named} of {1 if args.dag_id else len(seen)} Dags.")


def _line(remark: Remark) -> dict[str, Any]:
    return {
        "dag_id": remark.dag_id,
        "rule": remark.rule,
        "mode": remark.mode,
        "what": remark.what,
        "tasks": ", ".join(remark.tasks),
        "done": remark.done,
        "fix": remark.fix,
        "is_note": remark.is_note,
    }
