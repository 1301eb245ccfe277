"""Where tests write that break off writes: in memory, where waiting for a disk costs nothing, if there is room for it.

With CKPT_TEST_FULL, or where TMPDIR says so, it is the folder for temporary files, on a disk.
"""
import os
import shutil
import tempfile

MEMORY = "/dev/shm"


def folder(prefix, n_bytes):
    """A temporary folder with room for so many bytes."""
    on_disk = "CKPT_TEST_FULL" in os.environ or "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK)
    where = None if on_disk or shutil.disk_usage(MEMORY).free < 2 * n_bytes else MEMORY
    return tempfile.TemporaryDirectory(prefix=prefix, dir=where)
