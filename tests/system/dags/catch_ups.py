"""Catch-up: DAGs with missed runs on Airflow's default schedules, and their twins with data intervals."""

from __future__ import annotations

from datetime import date, timedelta

from tests.system.twins import NEW_YORK, twin

# A run without an interval is dated one period later than its twin, which bears the start of its interval.
DAY = timedelta(days=1)
CATCH_UPS = (
    # name, cron, zone of the schedule, date of the first run and of the last run of the twin with intervals
    ("spring", "@daily", NEW_YORK, date(2013, 3, 9), date(2013, 3, 11)),
    ("autumn", "@daily", NEW_YORK, date(2013, 11, 2), date(2013, 11, 4)),
    ("utc", "@daily", "UTC", date(2013, 3, 10), date(2013, 3, 12)),
    ("two_am", "0 2 * * *", NEW_YORK, date(2013, 3, 9), date(2013, 3, 11)),
)
for name, cron, timezone, first, last in CATCH_UPS:
    twin(name, cron, timezone, first, last, catchup=True, intervals=True)
    twin(name, cron, timezone, first + DAY, last + DAY, catchup=True, intervals=False)
