"""The figures: our driver beside one on the Go helper, on a real Kubernetes, in one run (`make bench`)."""
