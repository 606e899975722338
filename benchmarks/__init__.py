"""Speed and memory, measured on demand: ``python -m benchmarks``. Tests never measure time; this does."""
