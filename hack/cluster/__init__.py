"""A real Kubernetes on this machine, for trying and testing the driver: `python3 -m hack.cluster --help`.

Everything is built from Go modules and lives in private namespaces and control groups, so that ending the cluster in
whatever way gives the machine back as it was. Only the standard library is used: this runs before any virtual
environment exists.
"""
