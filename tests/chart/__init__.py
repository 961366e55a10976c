"""The chart, rendered by Helm and compared with the driver's own rules; no cluster is needed."""
