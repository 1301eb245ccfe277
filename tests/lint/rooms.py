#!/usr/bin/env python3
"""The house: which room each file is in, and which rooms its includes open onto. Exit 1 if a door is where none may be.

    rooms.py [--nouns] [ROOT]

A room is a folder of ROOMS. An include points into its own room or down: to an earlier room of libckpt, and above
libckpt only as ABOVE says. Rooms of one floor may include each other as long as no circle comes of it. --nouns looks for
nouns of one format in the engine instead.
"""
import collections
import os
import re
import sys

TOPS = ("libckpt", "kernels", "formats", "trainer", "tools")
ENGINE = ("base", "io", "index", "format", "extents", "plan", "run")
LIBRARY = (*ENGINE, "codec", "recipe")  # rooms of libckpt, lowest first
ROOMS = {  # of each part of the house; they may have rooms of their own
    "libckpt": LIBRARY,
    "kernels": ("ref", "cpu", "cuda"),
    "formats": ("arch", "dcp", "dcpv2", "gguf", "hf", "onnx", "tokenizer", "torch", "zero"),
    "trainer": ("checkpoint", "data", "evaluation", "loop", "lora", "model", "optimizer", "parallel"),
    "tools": ("cmd", "cli", "report"),
}
ABOVE = {  # what each part of the house may include beside itself; libckpt/ckpt.h is everyone's
    "libckpt": (),
    "kernels": ("libckpt/base",),
    "formats": tuple(f"libckpt/{room}" for room in LIBRARY if room != "recipe"),
    "trainer": ("libckpt", "formats", "kernels"),
    "tools": ("libckpt", "formats", "kernels", "trainer"),
}
PUBLIC = ("libckpt/ckpt.h", "libckpt/ckpt.map")
AT_THE_TOP = {  # files that may lie outside a room
    "libckpt": ("ckpt.h", "ckpt.map"),
    "kernels": (),
    "formats": ("decoders.def", "formats.def", "registry.c", "imatrix.c", "safetensors.c"),
    "trainer": ("main.c",),
    "tools": ("main.c",),
}
MAX_FILES = 30

NOUNS = ("torch", "onnx", "gguf", "ggml", "dcp", "deepspeed", "megatron", "safetensors", "universal", "peft", "pickle")
NOUNS_ALLOWED = (
    "libckpt/base/dtype.def", "libckpt/base/dtype.c", "libckpt/base/dtype.h",  # the table of dtypes has their names
    "libckpt/format/recognize.c",  # knows by content what cannot be read
    "libckpt/index/arch.h", "libckpt/index/arch.c",  # names of families in each dialect
)

INCLUDE = re.compile(r'^[ \t]*(?:#|%:)[ \t]*include(?:_next)?\b[ \t]*(?:"([^"\n]*)"|<([^>\n]*)>|(\S[^\n]*))', re.M)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)
SOURCE = (".c", ".h", ".def", ".cu", ".cuh", ".map", ".proto")  # of the house, and no others
ELSEWHERE = ("tests", "bench", "docs", "cmake")  # folders at the root that are no part of the house, nor is build*


def room_of(path):
    return os.path.dirname(path)


def floor_of(path):
    """The room of libckpt that a path is below, as a number; None outside libckpt."""
    parts = path.split("/")
    if parts[0] != "libckpt":
        return None
    return -1 if len(parts) == 2 else LIBRARY.index(parts[1]) if parts[1] in LIBRARY else len(LIBRARY)


def below(path, folders):
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def is_wrong_door(path, target):
    """Why `path` may not include `target` (both from the root), or None."""
    top, to = path.split("/")[0], target.split("/")[0]
    if {".", "..", ""} & set(target.split("/")):
        return "is not written from the root"
    if target in PUBLIC:
        return None
    if to not in TOPS:
        return None if to == "generated" else "is in no part of the house"
    if top != to:
        up = TOPS.index(to) > TOPS.index(top)
        return None if below(target, ABOVE[top]) else "points up" if up else "points sideways"
    if top == "libckpt":
        return "points up" if floor_of(target) > floor_of(path) else None
    if top == "kernels":
        return wrong_kernel(path.split("/")[1], target.split("/")[1])
    if top == "formats" and not is_own_format(path, target):
        return "points sideways, into another format"
    return None


def wrong_kernel(here, there):
    """Why a backend may not include another, or None: all may include the reference, which includes none."""
    return None if there in (here, "ref") else "points up" if here == "ref" else "points sideways, into another backend"


def is_own_format(path, target):
    """A format includes its own room; the rows at the top of formats/ (*.def) are everyone's. The registry has all."""
    here, there = path.split("/"), target.split("/")
    if len(there) == 2:
        return target.endswith(".def")
    return path == "formats/registry.c" or (len(here) > 2 and here[1] == there[1])


def misplaced(path):
    """Why a file is in no room, or None."""
    top, *rest = path.split("/")
    if top not in TOPS:
        return "is in no part of the house"
    if not path.endswith(SOURCE):
        return f"is no source of the house ({' '.join(SOURCE)})"
    if len(rest) == 1:
        return None if rest[0] in AT_THE_TOP[top] else "lies in no room"
    if rest[0] not in ROOMS[top]:
        return f"no room of {top} is called {rest[0]}"
    return None


def blank_comments(text):
    """The text with comments blanked, line for line."""
    return COMMENT.sub(lambda m: m.group(1) or re.sub(r"[^\n]", " ", m.group(0)), text)


def includes(texts, path):
    """The files of ours that a file includes, from the root; what a macro names as it is."""
    for quoted, angled, other in INCLUDE.findall(blank_comments(texts[path].replace("\\\n", ""))):
        if quoted:
            beside = os.path.normpath(os.path.join(os.path.dirname(path), quoted))
            yield beside if "/" not in quoted and beside in texts else quoted
        elif other or is_ours(angled):
            yield other or angled


def is_ours(name):
    """Whether a name in angle brackets is a file of the house, by its first part behind dots."""
    return next((part for part in os.path.normpath(name).split("/") if part != ".."), "") in TOPS


def circles(doors):
    """Rooms that lead back to themselves: one list for each circle."""
    found, state = [], {}

    def walk(room, way):
        state[room] = "open"
        for to in sorted(doors.get(room, ())):
            if state.get(to) == "open":
                found.append([*way[way.index(to):], to])
            elif to not in state:
                walk(to, [*way, to])
        state[room] = "done"

    for room in sorted(doors):
        if room not in state:
            walk(room, [room])
    return found


def check(texts):
    """All that is wrong with the house of these {path: text}, as lines."""
    doors = collections.defaultdict(set)
    for path in sorted(texts):
        why = misplaced(path)
        if why:
            yield f"{path}: {why}"
        if path.split("/")[0] not in TOPS:
            continue
        for target in includes(texts, path):
            why = is_wrong_door(path, target)
            if why:
                yield f"{path}: {target} {why}"
            if room_of(path) != room_of(target) and target not in PUBLIC and target.split("/")[0] in TOPS:
                doors[room_of(path)].add(room_of(target))
    for circle in circles(doors):
        yield "a circle of rooms: " + " -> ".join(circle)
    for room, n in sorted(collections.Counter(map(room_of, texts)).items()):
        if n > MAX_FILES:
            yield f"{room}: {n} files, at most {MAX_FILES} (it wants rooms)"


def nouns(texts):
    """Nouns of one format in names of files, identifiers and strings of the engine."""
    pattern = re.compile("|".join(NOUNS), re.I)
    for path in sorted(texts):
        parts = path.split("/")
        if parts[0] != "libckpt" or len(parts) < 3 or parts[1] not in ENGINE or path in NOUNS_ALLOWED:
            continue
        if pattern.search(path):
            yield f"{path}: {pattern.search(path).group(0)} is a noun of one format"
        code = blank_comments(texts[path])
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(0)} is a noun of one format: {texts[path].splitlines()[line - 1].strip()}"


def sources(root):
    """{path: text} of the house: all files of its parts, and sources in a folder of the root that is none of them."""
    texts = {}
    for folder, names, files in os.walk(root):
        here = os.path.relpath(folder, root)
        names[:] = sorted(name for name in names if not name.startswith(".") and name != "__pycache__" and
                          not (here == "." and (name in ELSEWHERE or name.startswith("build"))))
        for name in sorted(files):
            path = os.path.normpath(os.path.join(here, name))
            is_source = name.endswith(SOURCE)
            if is_source or (here.split("/")[0] in TOPS and not name.startswith(".")):
                with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                    texts[path] = file.read()
    return texts


def show(texts):
    """A line for each room: files, lines, and the rooms that it includes."""
    for room in sorted(set(map(room_of, texts))):
        mine = [path for path in texts if room_of(path) == room]
        to = {room_of(target) for path in mine for target in includes(texts, path) if target not in PUBLIC}
        n_lines = sum(texts[path].count("\n") for path in mine)
        print(f"{room:28} {len(mine):3} files {n_lines:6} lines  {' '.join(sorted(to - {room}))}")


def main(args):
    wants_nouns = "--nouns" in args
    root = next((arg for arg in args if not arg.startswith("--")), ".")
    texts = sources(root)
    if not texts:
        print(f"{root}: no house here")
        return 1
    if not wants_nouns:
        show(texts)
    wrong = list(nouns(texts) if wants_nouns else check(texts))
    for line in wrong:
        print(line)
    print(f"{len(wrong)} {'nouns' if wants_nouns else 'wrong doors'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
