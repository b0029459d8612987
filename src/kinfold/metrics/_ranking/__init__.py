"""The exact ranking engine behind the metrics."""
