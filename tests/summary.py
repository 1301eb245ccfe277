#!/usr/bin/env python3
"""What a run of ctest took and left out: its slowest tests, and why tests were skipped, in whole or in part.

    summary.py JUNIT_XML [N_SLOWEST]

Reads what `ctest --output-junit` wrote. A test that is skipped says why (GTEST_SKIP, or the last line that it printed);
one that passed without a part says so in a line with the word SKIPPED.
"""
import re
import sys
import xml.etree.ElementTree

MOST_NAMES = 4  # of one reason


def reason(case):
    """Why a test was skipped, or what it left out; None where it did all."""
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    if case.find("skipped") is None:
        return next((line for line in lines if re.search(r"\bSKIPPED\b", line) and not line.startswith("[")), None)
    for i, line in enumerate(lines):
        if re.search(r": Skipped$", line):  # googletest's: FILE:LINE: Skipped, and the reason below it
            return lines[i + 1] if i + 1 < len(lines) and not lines[i + 1].startswith("[") else "it does not say why"
    return lines[-1] if lines else case.find("skipped").get("message") or "it does not say why"


def name_of(case):
    return case.get("name").split("  # ")[0]  # without googletest's parameters


def main(path, n_slowest=5):
    cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    slowest = sorted(cases, key=lambda case: -float(case.get("time") or 0))[:n_slowest]
    print("  slowest: " + ", ".join("%s %.1f s" % (name_of(case), float(case.get("time") or 0)) for case in slowest))
    reasons = {}
    for case in cases:
        why = reason(case)
        if why is not None:
            part = "" if case.find("skipped") is not None else " (a part of it)"
            reasons.setdefault(why, []).append(name_of(case) + part)
    for why, names in reasons.items():
        more = ", and %d more" % (len(names) - MOST_NAMES) if len(names) > MOST_NAMES else ""
        print("  skipped: %s%s: %s" % (", ".join(names[:MOST_NAMES]), more, why))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
