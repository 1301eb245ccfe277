#!/usr/bin/env python3
"""Every text that libckpt and ckpt can say, as the sources state it: its style, and whether a test has seen it.

    messages.py [ROOT]            exit 1 when a text is not in the style of the house (lower case, no full stop)
    messages.py --unseen [ROOT]   lists the texts that no test has seen: a report, exit 0

Collected is every string literal with a space between words, wherever it stands: the library says nothing but messages
and parts of them. Left out are pieces of JSON, and in tools/ what is help: tables outside of functions, and the files
of DOCUMENTS; docs/cli.md has it. Words alone ("truncated") are not collected. Conversions are kept as they stand, PRIu64
as %u.

A test has seen a text that stands whole in what tests expect (tables, outputs, their sources), whatever its conversions
became there; or of which a test's own literal of two words or more is a part. Texts of few letters are not judged.
"""
import os
import re
import sys

import lint

LITERAL = re.compile(r'"[^"\n]*"')  # of code whose strings are blanked
FOLDERS = ("libckpt", "formats", "kernels", "trainer", "tools")
DOCUMENTS = ("completion.c", "help.c", "man.c", "markdown.c")
EXPECTED = (".cc", ".h", ".py", ".sh", ".tsv", ".stdout", ".stderr")  # of tests/: what holds what they expect
CONVERSION = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t|L)?[a-zA-Z]|%$")  # the last: of a PRI macro
N_LETTERS = 6  # of the longest piece between conversions, to be judged


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


def unescaped(text):
    return re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape.group(1), escape.group(1)), text)


class Seen:
    """What the tests expect, by lines and by their literals."""

    def __init__(self, texts):
        joined = [re.sub(r'"\s*\n\s*[fr]?"', "", text) for text in texts]
        self.text = "\n".join(joined).replace('\\"', '"').replace("\\'", "'")
        quoted = (unescaped(q[1:-1]) for text in joined for q in re.findall(r'"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)*'", text))
        self.literals = {literal.strip(": ") for literal in quoted}
        self.literals = [literal for literal in self.literals if len(literal) >= 10 and " " in literal]

    def has(self, message):
        """Whether a test has seen a message; None where it has too few letters to tell."""
        for line in filter(None, unescaped(message).split("\n")):
            pieces = [piece.replace("%%", "%").strip() for piece in CONVERSION.split(line.replace("% ", "%% "))]
            longest = max(pieces, key=len)
            if len(longest) < N_LETTERS:
                continue
            whole = re.compile("[^\n]*?".join(re.escape(piece) for piece in pieces if piece))
            at = self.text.find(longest)
            while at >= 0:  # in each line that has the longest piece
                begin, end = self.text.rfind("\n", 0, at) + 1, self.text.find("\n", at)
                if whole.search(self.text[begin:end if end >= 0 else None]):
                    return True
                at = self.text.find(longest, end) if end >= 0 else -1
            return any(literal in piece for piece in pieces if len(piece) >= 10 for literal in self.literals)
        return None


def expected(root):
    """The texts of what tests expect, but for those of this folder."""
    for folder, _, files in os.walk(os.path.join(root, "tests")):
        for name in files if os.path.basename(folder) != "lint" else ():
            if name.endswith(EXPECTED):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    yield file.read()


def all_messages(root):
    """(path, message) of all sources."""
    for path in lint.sources(root):
        if lint.top_folder(path) not in FOLDERS or not path.endswith((".c", ".h")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for message in collect(path, file.read()):
                yield path, message


def report_unseen(root):
    seen = Seen(list(expected(root)))
    verdicts, messages = {}, list(all_messages(root))
    for path, message in messages:
        if message not in verdicts:
            verdicts[message] = seen.has(message)
        if verdicts[message] is False:
            print(f"{path}\t{message}")
    counts = [sum(verdicts[message] is verdict for _, message in messages) for verdict in (True, False, None)]
    print("messages: %d in the sources; tests have seen %d, not %d; %d are too short to tell" % (len(messages), *counts))
    return 0


def main(args):
    rest = [arg for arg in args if arg != "--unseen"]
    root = rest[0] if rest else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    if "--unseen" in args:
        return report_unseen(root)
    n, status = 0, 0
    for path, message in all_messages(root):
        n += 1
        if style(message):
            print(f"{path}: {style(message)}: {message}")
            status = 1
    print(f"messages: {n} in the sources")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
