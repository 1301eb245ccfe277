#!/usr/bin/env python3
"""What a run of ctest took and left out: its number of tests, the slowest ones, and why tests were skipped, in whole or in part.

    summary.py JUNIT_XML [N_SLOWEST]

Reads what `ctest --output-junit` wrote. A case of ctest is a script, or a suite of a test program, whose tests its output
names. A test that is skipped says why (GTEST_SKIP, or the last line that it printed); one that passed without a part says
so in a line with the word SKIPPED. Exits with 1 where a test that began did not end, though its process said nothing.
"""
import re
import sys
import xml.etree.ElementTree

MOST_NAMES = 4  # of one reason


class Test:
    def __init__(self, name):
        self.name = name
        self.seconds = 0.0
        self.is_skipped = False
        self.has_ended = False
        self.said = []

    def reason(self):
        """Why it was skipped, or what it left out; None where it did all."""
        if not self.is_skipped:
            return next((line for line in self.said if re.search(r"\bSKIPPED\b", line)), None)
        for i, line in enumerate(self.said):
            if re.search(r": Skipped$", line):  # googletest's: FILE:LINE: Skipped, and the reason below it
                return self.said[i + 1] if i + 1 < len(self.said) else "it does not say why"
        return self.said[-1] if self.said else "it does not say why"


def tests_of(case):
    """The tests of a suite; a script is one."""
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    tests = []
    for line in lines:
        begin = re.match(r"\[ RUN      \] (\S+)", line)
        end = re.match(r"\[(       OK |  SKIPPED |  FAILED  )\] (\S+?),? .*\((\d+) ms\)$", line)
        if begin:
            tests.append(Test(begin[1]))
        elif end and tests and end[2] == tests[-1].name:
            tests[-1].is_skipped = "SKIPPED" in end[1]
            tests[-1].seconds = int(end[3]) / 1000
            tests[-1].has_ended = True
        elif tests and not line.startswith("["):
            tests[-1].said.append(line)
    if not tests:
        script = Test(case.get("name"))
        script.seconds = float(case.get("time") or 0)
        script.is_skipped = case.find("skipped") is not None
        script.said = lines
        script.has_ended = True
        tests.append(script)
    return tests


def main(path, n_slowest=5):
    cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    tests = [test for case in cases for test in tests_of(case)]
    slowest = sorted(tests, key=lambda test: -test.seconds)[:n_slowest]
    print("  %d tests in %d processes" % (len(tests), len(cases)))
    print("  slowest: " + ", ".join("%s %.1f s" % (test.name, test.seconds) for test in slowest))
    reasons = {}
    for test in tests:
        if test.reason() is not None:
            reasons.setdefault(test.reason(), []).append(test.name + ("" if test.is_skipped else " (a part of it)"))
    for why, names in reasons.items():
        more = ", and %d more" % (len(names) - MOST_NAMES) if len(names) > MOST_NAMES else ""
        print("  skipped: %s%s: %s" % (", ".join(names[:MOST_NAMES]), more, why))
    lost = [test.name for test in tests if not test.has_ended]  # with all tests of their suites behind them
    if lost:
        print("  ended the process that tests it: %s" % ", ".join(lost))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
