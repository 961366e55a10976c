"""The tour of `make demo`: installs the chart and shows, step by step, what the driver does on a cluster."""
