#!/usr/bin/env python3
"""The house: which room each file is in, and which rooms its includes open onto. Exit 1 if a door is where none may be.

    rooms.py [--nouns] [ROOT]

A room is a folder. An include points into its own room or down: to an earlier room of libckpt, and above libckpt only
as ABOVE says. Rooms of one floor may include each other as long as no circle comes of it. --nouns looks for nouns of
one format in the engine instead.
"""
import collections
import os
import re
import sys

TOPS = ("libckpt", "kernels", "formats", "trainer", "tools")
ENGINE = ("base", "io", "index", "format", "extents", "plan", "run")
LIBRARY = (*ENGINE, "codec", "recipe")  # rooms of libckpt, lowest first
ABOVE = {  # what each part of the house may include beside itself; libckpt/ckpt.h is everyone's
    "kernels": ("libckpt/base",),
    "formats": tuple(f"libckpt/{room}" for room in LIBRARY if room != "recipe"),
    "trainer": ("libckpt", "formats", "kernels"),
    "tools": ("libckpt", "formats", "kernels", "trainer"),
}
PUBLIC = ("libckpt/ckpt.h", "libckpt/ckpt.map")
AT_THE_TOP = {  # files that may lie outside a room
    "libckpt": ("ckpt.h", "ckpt.map"),
    "kernels": (),
    "formats": None,  # the registry, and formats of one file
    "trainer": ("main.c",),
    "tools": ("main.c",),
}
MAX_FILES = 30

NOUNS = ("torch", "onnx", "gguf", "ggml", "dcp", "deepspeed", "megatron")
NOUNS_ALLOWED = (
    "libckpt/base/dtype.def", "libckpt/base/dtype.c", "libckpt/base/dtype.h",  # the table of dtypes has their names
    "libckpt/format/recognize.c",  # knows by content what cannot be read
    "libckpt/index/arch.h", "libckpt/index/arch.c",  # names of families in each dialect
)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)
SOURCE = (".c", ".h", ".def", ".cu", ".cuh", ".map", ".proto")


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
    if target in PUBLIC:
        return None
    if to not in TOPS:
        return None if to == "generated" else f"{target} is in no part of the house"
    if top == to == "libckpt":
        return "points up" if floor_of(target) > floor_of(path) else None
    if top != to:
        if top == "libckpt" or TOPS.index(to) > TOPS.index(top):
            return "points up"
        return None if below(target, ABOVE[top]) else "points sideways"
    if top != "formats":
        return None
    return None if is_own_format(path, target) else "points sideways, into another format"


def is_own_format(path, target):
    """A format includes its own room; the registry and rows of formats/ (*.def) are everyone's."""
    here, there = path.split("/"), target.split("/")
    return len(there) == 2 or (len(here) > 2 and here[1] == there[1]) or here[-1] == "registry.c"


def misplaced(path):
    """Why a file is in no room, or None."""
    top, *rest = path.split("/")
    if len(rest) == 1:
        allowed = AT_THE_TOP[top]
        return None if allowed is None or rest[0] in allowed else "lies in no room"
    if top == "libckpt" and rest[0] not in LIBRARY:
        return f"no room of libckpt is called {rest[0]}"
    return None


def includes(texts, path):
    """The files that a file includes, from the root."""
    for match in INCLUDE.finditer(texts[path]):
        name = match.group(1)
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        yield beside if "/" not in name and beside in texts else name


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
    """Nouns of one format in identifiers and strings of the engine."""
    pattern = re.compile("|".join(NOUNS), re.I)
    for path in sorted(texts):
        parts = path.split("/")
        if parts[0] != "libckpt" or len(parts) < 3 or parts[1] not in ENGINE or path in NOUNS_ALLOWED:
            continue
        code = COMMENT.sub(lambda m: m.group(1) or re.sub(r"[^\n]", " ", m.group(0)), texts[path])
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(0)} is a noun of one format: {texts[path].splitlines()[line - 1].strip()}"


def sources(root):
    """{path: text} of the house."""
    texts = {}
    for top in TOPS:
        for folder, names, files in os.walk(os.path.join(root, top)):
            names.sort()
            for name in sorted(files):
                if name.endswith(SOURCE):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    with open(os.path.join(root, path), encoding="utf-8") as file:
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
