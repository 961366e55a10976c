"""Write a Kubernetes DRA kubelet plugin in Python; the public modules of this package are its API.

This file imports nothing, so that a program pays only for the modules it uses.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
