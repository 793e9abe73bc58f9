"""Airflow operators: a thin skin over definition, plan and execution."""
