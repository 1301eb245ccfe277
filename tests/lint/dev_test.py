#!/usr/bin/env python3
"""./dev refuses arguments that it would pass by, before it builds anything; and says what `./dev test` took and left out.

Runs a copy of it in a folder of its own with few commands in PATH: what it does not refuse fails there at once, or meets
a cmake and a ctest that do nothing but write what the real ones would.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

DEV = os.path.join(sys.argv.pop(1) if len(sys.argv) > 1 else ".", "dev")
COMMANDS = "bash cat dirname find id ls mkdir nproc rm sed sleep sort tail tr".split()
TOOLS = "c++ cc make ninja pkg-config protoc-c".split()  # that are there, and never run but to be asked for libraries
JUNIT = """<testsuite>
<testcase name="Slow.One" time="12.34" status="run"><system-out>all is well</system-out></testcase>
<testcase name="Part" time="3" status="run"><system-out>Part: small disks SKIPPED, no mount here
</system-out></testcase>%s
<testcase name="Gone" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>no disk to mount
</system-out></testcase>
<testcase name="Left" time="0.5" status="run"><system-out>[ RUN      ] Left.Out
/a/b_test.cc:12: Skipped
no file system in memory
[  SKIPPED ] Left.Out (500 ms)
[ RUN      ] Left.In/2
[       OK ] Left.In/2 (2 ms)
</system-out></testcase></testsuite>""" % "".join('<testcase name="T%d" time="0.0%d"/>' % (i, i) for i in range(1, 6))
CTEST = """#!/usr/bin/env bash
for word; do [ "$before" != --output-junit ] || cat > "$word" << 'END'
%s
END
before=$word; done
echo '  7/8 Test #7: Part ... Passed    3.00 sec'
[[ "$*" != *sanitize* ]] || sleep ${CTEST_SECONDS:-0}
echo '100%% tests passed, 0 tests failed out of 8'
exit ${CTEST_STATUS:-0}
""" % JUNIT


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

    def said(self, command, **environment):
        result = subprocess.run(["bash", self.folder.name + "/dev", *command.split()], text=True, capture_output=True,
                                stdin=subprocess.DEVNULL, env={"PATH": self.folder.name + "/bin", **environment})
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

    def put(self, name, text):
        path = os.path.join(self.folder.name, "bin", name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def prepare(self):
        for name in TOOLS:
            self.put(name, "#!/usr/bin/env bash\n")
        self.put("cmake", "#!/usr/bin/env bash\necho '[3/4] Building a.c'\n"
                          '[[ "$*" != "--build build "* ]] || sleep ${CMAKE_SECONDS:-0}\n')
        self.put("ctest", CTEST)
        self.put("python3", '#!/usr/bin/env bash\n[ "$1" = -c ] || exec %s "$@"\n' % sys.executable)
        os.symlink(shutil.which("env"), self.folder.name + "/bin/env")
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(DEV)), "tests/summary.py"), self.folder.name + "/tests")
        open(self.folder.name + "/CMakePresets.json", "w").close()

    def test_what_a_test_took_and_left_out(self):
        self.prepare()
        status, out = self.said("test", CMAKE_SECONDS="1.1")
        self.assertEqual(status, 0, out)
        self.assertEqual(out.count("  10 tests in 9 processes\n"), 2, out)
        self.assertEqual(out.count("slowest: Slow.One 12.3 s, Part 3.0 s, Left.Out 0.5 s, T5 0.1 s, T4 0.0 s\n"), 2, out)
        self.assertEqual(out.count("skipped: Left.Out: no file system in memory\n"), 2, out)
        self.assertEqual(out.count("skipped: Gone: no disk to mount\n"), 2, out)
        self.assertEqual(out.count("skipped: Part (a part of it): Part: small disks SKIPPED, no mount here\n"), 2, out)
        self.assertIn("sanitize: 100% tests passed", out)
        self.assertRegex(out, r"took: build release [1-9]\d* s; build sanitize \d+ s; test sanitize \d+ s; "
                              r"test release \d+ s; [1-9]\d* s in all\n100% tests passed, 0 tests failed out of 8\n")

    def test_a_suite_that_ends_early_fails(self):
        self.prepare()
        self.put("ctest", CTEST.replace("[       OK ] Left.In/2 (2 ms)\n", ""))
        status, out = self.said("test")
        self.assertEqual(status, 1, out)
        self.assertIn("ended the process that tests it: Left.In/2\n", out)
        self.assertNotIn("testing release", out)

    def test_what_fails_is_shown(self):
        self.prepare()
        status, out = self.said("test", CTEST_STATUS="8")
        self.assertEqual(status, 1, out)
        self.assertIn("  7/8 Test #7: Part ... Passed", out)
        self.assertNotIn("testing release", out)

    @unittest.skipUnless(hasattr(os, "openpty"), "no terminals here")
    def test_progress_on_a_terminal(self):
        self.prepare()
        ours, theirs = os.openpty()
        process = subprocess.Popen(["bash", self.folder.name + "/dev", "test"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=theirs, text=True,
                                   env={"PATH": self.folder.name + "/bin", "CMAKE_SECONDS": "2.5", "CTEST_SECONDS": "2.5"})
        os.close(theirs)
        seen = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:  # nobody has the other side any more
                break
            if not read:
                break
            seen += read
        self.assertIn("100% tests passed", process.communicate()[0])
        os.close(ours)
        self.assertRegex(seen.decode(), r"\rbuild-release: 3/4, \d+ s")
        self.assertRegex(seen.decode(), r"\rtest-sanitize: 7/8, \d+ s")


if __name__ == "__main__":
    unittest.main()
