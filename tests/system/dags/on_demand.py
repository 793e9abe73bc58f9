"""DAGs that run when a test says so: Airflow's default schedule, and the twin with data intervals."""

from __future__ import annotations

from datetime import date

from tests.system.twins import NEW_YORK, twin

for name in ("manual", "cleared", "dateless", "replay_spring", "replay_autumn"):
    for intervals in (False, True):
        year = (date(2013, 1, 1), date(2013, 12, 31))
        twin(name, "@daily", NEW_YORK, *year, catchup=False, intervals=intervals)
