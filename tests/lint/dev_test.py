#!/usr/bin/env python3
"""./dev refuses arguments that it would pass by, before it builds anything.

Runs a copy of it in a folder of its own with few commands in PATH: what it does not refuse fails there at once.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

DEV = os.path.join(sys.argv.pop(1) if len(sys.argv) > 1 else ".", "dev")
COMMANDS = "bash cat dirname find id mkdir nproc sed sort tr".split()


class Dev(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.makedirs(self.folder.name + "/bin")
        os.makedirs(self.folder.name + "/tests/fuzz")
        open(self.folder.name + "/tests/fuzz/fuzz_open.c", "w").close()
        shutil.copy(DEV, self.folder.name)
        for name in COMMANDS:
            os.symlink(shutil.which(name), os.path.join(self.folder.name, "bin", name))

    def tearDown(self):
        self.folder.cleanup()

    def said(self, command):
        result = subprocess.run(["bash", self.folder.name + "/dev", *command.split()], text=True, capture_output=True,
                                stdin=subprocess.DEVNULL, env={"PATH": self.folder.name + "/bin"})
        return result.returncode, result.stdout + result.stderr

    def test_too_many(self):
        for command in ["demo x", "build release x", "test --full x", "interop x", "lint x", "format x", "fuzz open 1 x"]:
            expected = "dev: unexpected after %s: x (./dev help)\n" % command.split()[0]
            self.assertEqual(self.said(command), (1, expected), command)

    def test_wrong(self):
        self.assertEqual(self.said("test x"), (1, "dev: test takes only --full\n"))
        for name in ("opn", "pen", "open."):
            self.assertEqual(self.said("fuzz " + name), (1, "dev: no fuzz target '%s' (have: open)\n" % name))
        self.assertEqual(self.said("x")[0], 2)

    def test_right(self):  # goes on, and misses all that it needs
        for command in ["build release", "test --full", "fuzz open 1", "lint"]:
            self.assertIn("these are missing", self.said(command)[1], command)


if __name__ == "__main__":
    unittest.main()
