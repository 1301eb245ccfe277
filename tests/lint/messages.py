#!/usr/bin/env python3
"""Every text that libckpt and ckpt can say, as the sources state it: tests/golden-errors/messages.txt.

    messages.py [--bless] [ROOT]

A change of wording is then a change of that list, seen in review. Without --bless: exit 1 when list and sources differ,
or when a text is not in the style of the house (lower case, no full stop). Collected is every string literal with a
space between words, wherever it stands: the library says nothing but messages and parts of them. Left out are pieces
of JSON, and in tools/ what is help: tables outside of functions, and the files of DOCUMENTS; docs/cli.md has it. Words
alone ("truncated") are not seen. Conversions are kept as they stand, PRIu64 as %u.
"""
import os
import re
import sys

import lint

LITERAL = re.compile(r'"[^"\n]*"')  # of code whose strings are blanked
FOLDERS = ("libckpt", "formats", "kernels", "tools")
DOCUMENTS = ("completion.c", "help.c", "man.c", "markdown.c")


def literals(text, code):
    """(where it begins, the text) of each literal; adjacent ones, with the PRI macros between them, are one."""
    parts, last = [], None
    for match in LITERAL.finditer(code):
        inside = text[match.start() + 1:match.end() - 1]
        joint = last is not None and re.fullmatch(r"[\s\\]*(?:PRI([a-zA-Z])\w*\s*)?", code[last:match.start()])
        if joint:
            parts[-1][1] += (joint.group(1) or "") + inside
        else:
            parts.append([match.start(), inside])
        last = match.end()
    return parts


def is_message(text):
    """Words, and not a file name, a key, a format of numbers or JSON."""
    if re.match(r'(?:\\n|[\s{}\[\],])*\\"\w+\\":', text):
        return False
    words = re.sub(r"%[^ ]*|\\.", "", text)
    return re.search(r"[a-zA-Z]{2}", words) and (" " in text.strip() or text.endswith(")"))


def collect(path, text):
    """The messages of one source file, in order, each once."""
    code, found = lint.code_of(text), {}
    bodies = [range(first, last + 1) for first, last, _ in lint.functions(code)]
    is_tool = lint.top_folder(path) == "tools"
    if is_tool and os.path.basename(path) in DOCUMENTS:
        return []
    for at, message in literals(text, code):
        if is_message(message) and (not is_tool or any(lint.line_of(code, at) in body for body in bodies)):
            found[message] = None
    return list(found)


def style(message):
    """What is wrong with a message, or None."""
    if re.match(r"[A-Z][a-z]+[ :]", message):  # DeepSpeed is a name, "Input, ..." a heading of the help
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
            for message in collect(path, file.read()):
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
