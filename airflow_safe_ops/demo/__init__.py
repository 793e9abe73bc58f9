"""
The demo: ninety days of real flights, loaded by a DAG that appends and by its safe twin through one incident.

``__main__`` is what a user starts. It owns the folder (``folder``), the embedded PostgreSQL (``server``) and the
source (``flights``), and starts ``engine`` in a process of its own: Airflow, which plays the ``story`` by ``runs``
in worker processes, with a ``gate`` that holds a writer back where a run is to be killed or overlapped. ``compare``
and ``show`` say what came out of it.
"""
