"""What hack/kubectl, hack/helm and hack/drasim start: a client by name, with arguments that are the client's own.

Run as a file, not as a module, so that it works from any folder; the checkout is the first argument.
"""

import sys

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from hack.cluster.cli import main

    sys.exit(main(["run", "--", *sys.argv[2:]]))
