"""The ``airflow safe-ops`` commands; each is imported when it is called."""
