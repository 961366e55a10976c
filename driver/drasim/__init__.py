"""A reference DRA driver for a simulated accelerator and NIC; this file imports nothing."""

__all__ = ["__version__"]

__version__ = "0.1.0"
