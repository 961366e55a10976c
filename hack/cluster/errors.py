"""What can go wrong, named by what the caller may do about it; each kind has its own exit code."""


class ClusterError(Exception):
    """Something failed while running; the message says what, and where to look."""

    code = 1


class UsageError(ClusterError):
    """The command line asks for something that does not exist or cannot be."""

    code = 2


class UnableError(ClusterError):
    """This machine cannot do it: not root, a kernel feature or a package is missing, the disk is full."""

    code = 3
