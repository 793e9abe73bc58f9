"""What a load costs, measured beside hand-written SQL on one server in one run; see docs/performance.md."""
