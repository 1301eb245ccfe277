#!/usr/bin/env python3
"""Every message that libckpt and ckpt can fail or warn with, as the sources state it: tests/golden-errors/messages.txt.

    messages.py [--bless] [ROOT]

A change of wording is then a change of that list, seen in review. Without --bless: exit 1 when list and sources differ,
or when a message is not in the style of the house (lower case, no full stop). Collected are the string literals in
calls of functions named *fail*, *refuse*, *note*, *loss*, *problem* or *warn*, wherever they stand in the arguments; a
literal that comes through a variable is not seen. Conversions are kept as they stand, PRIu64 as %u.
"""
import os
import re
import sys

import lint

CALL = re.compile(r"\b\w*(?:fail|refuse|note|loss|problem|warn)\w*\s*\(")
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
FOLDERS = ("libckpt", "formats", "kernels", "tools")


def arguments(code, start):
    """Where the parenthesis opened before start closes. Strings are blanked in code, so none misleads it."""
    depth = 1
    for at in range(start, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at
    return len(code)


def literals(text):
    """Adjacent string literals, with the PRI macros between them, are one."""
    parts, last = [], None
    for match in LITERAL.finditer(text):
        between = None if last is None else text[last:match.start()]
        joint = between is not None and re.fullmatch(r"\s*(?:PRI([a-zA-Z])\w*\s*)?", between)
        if joint:
            parts[-1] += (joint.group(1) or "") + match.group(0)[1:-1]
        else:
            parts.append(match.group(0)[1:-1])
        last = match.end()
    return parts


def is_message(text):
    """Words, and not a file name, a key or a format of numbers."""
    return re.search(r"[a-zA-Z]{2}", re.sub(r"%[^ ]*", "", text)) and (" " in text.strip() or text.endswith(")"))


def collect(text):
    """The messages of one source file, in order, each once."""
    code, found = lint.code_of(text), {}
    for match in CALL.finditer(code):
        if code[:match.start()].rstrip().endswith(("#define", "ckpt_status", "void", "int", "bool")):
            continue  # a definition
        for message in literals(text[match.end():arguments(code, match.end())]):
            if is_message(message):
                found[message] = None
    return list(found)


def style(message):
    """What is wrong with a message, or None."""
    if re.match(r"[A-Z][a-z]", message):
        return "begins with a capital"
    if re.search(r"[^.]\.$|!$", message.rstrip()):
        return "ends with a full stop"
    return None


def main(args):
    bless = "--bless" in args
    rest = [arg for arg in args if arg != "--bless"]
    root = rest[0] if rest else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    lines, status = [], 0
    for path in lint.sources(root):
        if lint.top_folder(path) not in FOLDERS or not path.endswith((".c", ".h")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for message in collect(file.read()):
                lines.append(f"{path}\t{message}\n")
                if style(message):
                    print(f"{path}: {style(message)}: {message}")
                    status = 1
    listed = os.path.join(root, "tests/golden-errors/messages.txt")
    if bless:
        with open(listed, "w", encoding="utf-8") as file:
            file.writelines(lines)
    with open(listed, encoding="utf-8") as file:
        golden = file.readlines()
    for line in sorted(set(lines) ^ set(golden)):
        print(("new:  " if line in lines else "gone: ") + line, end="")
        status = 1
    print(f"messages: {len(lines)} in the sources, {len(golden)} listed" + (" (--bless writes the list)" if status else ""))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
