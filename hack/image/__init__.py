"""Builds the driver's image from hack/image/Containerfile without Docker, without a registry and without pulling."""
