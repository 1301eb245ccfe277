#!/usr/bin/env python3
"""Runs the commands of a Markdown page's ```console blocks and compares what they print with what the page says.

    readme.py PAGE ROOT BUILD

Lines that begin with `$ ` are commands, in one shell per block; what follows is their output, stdout and stderr
together. `...` stands for any text within a line, alone on a line for any lines. Commands run in a scratch folder that
looks like the top of a built clone; what they write goes below its build/.
"""
import os
import re
import subprocess
import sys
import tempfile


def blocks(page):
    """(line number, [(command, expected)]) of each console block."""
    for match in re.finditer(r"^```console\n(.*?)^```$", page, re.M | re.S):
        commands = re.split(r"^\$ ", match.group(1), flags=re.M)[1:]
        pairs = [re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", text, re.S).groups() for text in commands]
        yield page.count("\n", 0, match.start()) + 1, pairs


def pattern(expected):
    """The expected text as a regular expression."""
    return "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
                   for line in expected.splitlines())


def main(page_path, root, build):
    with open(page_path, encoding="utf-8") as file:
        page = file.read()
    n_commands = n_wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(os.path.join(scratch, "build"))
        for name in ("tests", "docs", "libckpt"):
            os.symlink(os.path.join(os.path.abspath(root), name), os.path.join(scratch, name))
        for name in ("bin", "libckpt.so", "libckpt.so.0"):
            os.symlink(os.path.join(os.path.abspath(build), name), os.path.join(scratch, "build", name))
        env = {**os.environ, "PATH": f"{scratch}/build/bin:" + os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        for line, commands in blocks(page):
            script = "".join(f"{command} s=$?; printf '\\0'; (exit $s)\n" for command, _ in commands)
            ran = subprocess.run(["bash", "-c", script], env=env, cwd=scratch, text=True, check=False,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for (command, expected), printed in zip(commands, ran.stdout.split("\0")):
                n_commands += 1
                if not re.fullmatch(pattern(expected.rstrip("\n")), printed):
                    n_wrong += 1
                    print(f"{page_path}:{line}: $ {command}does not print what the page says, but:\n{printed}")
    print(f"{n_commands} commands, {n_wrong} print something else")
    return 1 if n_wrong or not n_commands else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
