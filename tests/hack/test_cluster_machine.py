"""Reading what the machine is."""

from pathlib import Path

import pytest

from hack.cluster import cgroups, disk
from hack.cluster.errors import UnableError
from hack.cluster.machine import file_system

HYBRID = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
cgroup /elsewhere/cpu cgroup rw 0 0
"""
MOUNTS = """21 1 8:1 / / rw - ext4 /dev/a rw
22 21 0:1 / /var/lib/x\\040y rw shared:1 - tmpfs none rw
23 21 0:2 / /data rw - ext4 /dev/b rw
24 21 0:3 / /data rw - overlay overlay rw
"""


def test_hierarchies_are_found_where_the_kubelet_looks() -> None:
    """Hierarchies below /sys/fs/cgroup count, v1 and v2, and no other mount of them."""
    found = cgroups.hierarchies(HYBRID)
    assert found == (Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup/unified"))
    assert not cgroups.unified(found)
    assert cgroups.unified(cgroups.hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"))


@pytest.mark.parametrize(
    ("path", "kind"), [("/srv", "ext4"), ("/var/lib/x y/z", "tmpfs"), ("/data/z", "overlay"), ("/database", "ext4")]
)
def test_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    """The longest mount point decides, the later of two at one place, and names with blanks are read."""
    assert file_system(Path(path), MOUNTS) == kind


def test_full_disk_is_refused_with_both_numbers(tmp_path: Path) -> None:
    """A step that needs more than there is says how much it needs and how much is free."""
    with pytest.raises(UnableError, match=r"needed for .*GiB are free"):
        disk.check([disk.Need(tmp_path / "not" / "yet", 2**60)])
    disk.check([disk.Need(tmp_path / "not" / "yet", 1)])
