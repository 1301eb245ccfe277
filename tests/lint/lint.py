#!/usr/bin/env python3
"""The rules of the house that a compiler does not check. Prints `file:line: what`, exit 1 if there is any.

    lint.py [ROOT]

Which room may include which is rooms.py's, which this runs.

Every rule is a function (path, text, code) -> (line, message)s in RULES; `code` is the text with comments and the
inside of strings blanked, line for line. lint_test.py feeds each rule snippets that it must refuse.
"""
import os
import re
import sys

import rooms

C_SUFFIXES = (".c", ".h", ".cc", ".cu", ".cuh", ".def")
PUBLIC_FOLDERS = ("libckpt", "formats", "kernels", "trainer")  # nothing below tools/ prints, exits or asks the environment
COMMANDS = ("trainer/main.c", "trainer/loop/options.c")  # but for ckpt-train's own command line

FORBIDDEN_ANYWHERE = {
    "strcpy": "no bound", "strcat": "no bound", "sprintf": "no bound", "vsprintf": "no bound", "gets": "no bound",
    "stpcpy": "no bound", "alloca": "no bound", "system": "runs a shell", "popen": "runs a shell",
    "tmpnam": "races", "mktemp": "races", "atoi": "cannot fail", "atol": "cannot fail", "atof": "cannot fail",
    "strtok": "hidden state", "rand": "hidden state",
}
FORBIDDEN_IN_LIBRARY = {
    **dict.fromkeys(("abort", "exit", "_exit", "_Exit", "quick_exit"), "a library returns an error"),
    **dict.fromkeys(("printf", "fprintf", "vprintf", "vfprintf", "puts", "fputs", "putchar", "perror", "dprintf"),
                    "a library prints nothing"),
    **dict.fromkeys(("signal", "sigaction", "setlocale", "setenv", "putenv"), "state of the whole process"),
    "strerror": "not safe in threads: ckpt_fail_errno",
    "mmap": "bytes are read: a file that shrinks would be a signal",
}
FORBIDDEN_IN_FORMATS = {
    **dict.fromkeys(("time", "clock", "clock_gettime", "gettimeofday", "getenv", "random"),
                    "a format is a pure function of bytes"),
    **dict.fromkeys(("open", "openat", "fopen", "opendir", "read", "pread", "mmap"), "bytes come through ckpt_source"),
}
# An arena or heap call whose byte count multiplies (binary `*`, as clang-format spaces it).
RAW_PRODUCT = re.compile(r"\b(?:malloc|realloc|aligned_alloc|ckpt_arena_alloc)\s*\((?:[^;]*?[\w)\]]) \* ")
MACHINE_PATH = re.compile(r"""(?<![\w.])/(?:tmp|work|home|root|Users)/""")
MAX_FILE, WARN_FUNCTION, MAX_FUNCTION, MAX_LINE = 800, 60, 80, 120
# Phrases that hide who does what, in what people read first: public pages, help and headers.
PHRASES = re.compile(r"\b(?:(?:is|are)_(?:said|told)|so_said|(?:stands?|lies?|lie)_beside|what_of_(?:it|them|that)"
                     r"|(?<!here )(?:is|are)_none|is_nothing_of|(?:that|what|which)_(?:is|are)_there|has_to_have"
                     r"|as_(?:it|they)_(?:lies?|stands?)|what_(?:stands?|lies?)|Of_(?:a|an|one|what)_\w+"
                     r"|stands?_(?:in|at|there|below|above|before))\b".replace("_", r"(?: |\n[ *]*)"))
# A path of this repository as pages name it; `foo` stands for what a reader adds.
PATH = re.compile(r"(?<![\w./-])((?:libckpt|formats|kernels|tools|tests|bench|cmake|docs)/[\w./*{},-]*[\w*/}])")
ROOM_PATH = re.compile(r"`((?:%s)/[\w./*{},-]+)`" % "|".join(rooms.LIBRARY))
FILE_NAME = re.compile(r"`([\w/-]+\.(?:c|h|cc|def|proto))`")

# Below these, scripts are run as they are found, or make data.
RUN_AS_FOUND = ("tests/data/", "tests/tools/cases/", "tests/fuzz/", "tests/interop/", "tests/demo/")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """The text with comments and the contents of string and character literals blanked."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def replace(match):
        piece = match.group(0)
        if piece[0] in "\"'":
            return piece[0] + " " * (len(piece) - 2) + piece[-1]
        return blank(match)

    return token.sub(replace, text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def top_folder(path):
    return path.split("/", 1)[0]


def file_length(path, text, code):
    """800 lines is the limit; 150 to 500 read best."""
    n = text.count("\n")
    if n > MAX_FILE:
        yield n, f"{n} lines, at most {MAX_FILE} (split by noun)"


def functions(code):
    """(first line, last line, name) of each top-level body, by the layout that clang-format gives."""
    lines = code.split("\n")
    start = None
    for i, line in enumerate(lines):
        if line == "" or line[0] in " \t}#{" or re.match(r"\w+:$", line):  # a label is no end
            if line.startswith("}") and start is not None:
                yield start + 1, i + 1, name
                start = None
            continue
        if start is None or not line.startswith(" "):
            head = re.match(r"[\w*&:<>,\s]*?\b(\w+)\(", line)
            start = i if head and "=" not in line.split("(")[0] and not line.rstrip().endswith((";", "}")) else None
            name = head.group(1) if head else ""


def function_length(path, text, code):
    """80 lines is the limit, 60 the aim."""
    if not path.endswith((".c", ".cu")) or path.startswith("tests/"):
        return
    for first, last, name in functions(code):
        if last - first + 1 > MAX_FUNCTION:
            yield first, f"{name} has {last - first + 1} lines, at most {MAX_FUNCTION} (aim at {WARN_FUNCTION})"


def calls(path, text, code):
    """Functions that nothing here may call, or not at this height."""
    folder = top_folder(path)
    forbidden = {} if folder in ("tests", "bench") else dict(FORBIDDEN_ANYWHERE)
    if folder in PUBLIC_FOLDERS and path not in COMMANDS:
        forbidden |= FORBIDDEN_IN_LIBRARY
    if folder == "formats" or path.startswith("libckpt/codec/"):
        forbidden |= FORBIDDEN_IN_FORMATS
    for match in re.finditer(r"(?<![\w.>])(\w+)\s*\(", code):
        why = forbidden.get(match.group(1))
        # a struct's slot of the same name is declared as `(*open)(`, called as `->open(`, initialized as `.open =`
        if why:
            yield line_of(code, match.start()), f"{match.group(1)} is not called here: {why}"
    if folder in PUBLIC_FOLDERS and path not in COMMANDS:
        for match in re.finditer(r"\b(stdout|stderr)\b", code):
            yield line_of(code, match.start()), f"{match.group(1)} is not used here: a library prints nothing"


def raw_product(path, text, code):
    """Sizes of allocations are multiplied where the product is checked."""
    if top_folder(path) in ("tests", "bench"):
        return
    for match in RAW_PRODUCT.finditer(code):
        yield line_of(code, match.start()), "unchecked product as a size (calloc, ckpt_arena_array or checked.h)"


def comments(path, text, code):
    """Every declaration of ckpt.h, and every function of the other headers, has a comment above or beside it.

    The types of an internal header may lean on its opening comment; forward typedefs say nothing to comment on.
    """
    if not path.endswith(".h") or top_folder(path) not in PUBLIC_FOLDERS:
        return
    lines, plain = text.split("\n"), code.split("\n")
    i = 0
    while i < len(plain):
        first = i
        if not re.match(r"[A-Za-z_]", plain[i]) or re.match(r'extern "|(typedef )?struct \w+( \w+)?;', plain[i]):
            i += 1
            continue
        while i < len(plain) - 1 and not re.search(r"[;{}]\s*$", plain[i]):
            i += 1
        is_type = re.match(r"(typedef )?(struct|enum|union) \w+ \{", plain[first])
        beside = any("/*" in line or "//" in line for line in lines[first:i + 1])
        above = first > 0 and re.search(r"\*/$|^//", lines[first - 1])
        if not (beside or above or (is_type and path != "libckpt/ckpt.h")):
            yield first + 1, f"declaration without a comment: {lines[first].strip()[:60]}"
        if plain[i].rstrip().endswith("{"):
            while i < len(plain) and not plain[i].startswith("}"):
                i += 1
        i += 1


def phrases(path, text, code):
    """Subject first, active verbs: see PHRASES."""
    is_header = path.startswith(rooms.TOPS) and path.endswith(".h")
    is_page = path.endswith(".md") and not path.startswith(("docs/formats/", "tests/", "bench/"))
    if is_header:  # comments alone
        text = re.sub(r"/\*.*?\*/|[^\n]", lambda match: match.group(0) if match.group(0)[0] == "/" else " ", text,
                      flags=re.S)
    if is_header or is_page:
        for match in PHRASES.finditer(text):
            phrase = re.sub(r"\s[\s*]*", " ", match.group(0))
            yield line_of(text, match.start()), f"'{phrase}': say who does what (subject first, active verb)"


def opening(path, text, code):
    """A file opens by saying what it is."""
    if path.endswith((".c", ".h", ".cc", ".cu", ".cuh")) and not text.startswith(("/*", "//")):
        yield 1, "does not open with a comment that says what it is"


def spelling(path, text, code):
    """Tabs, trailing blanks, long lines, typedefs in _t, paths of one machine."""
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield number, "tab"
        if line != line.rstrip():
            yield number, "trailing blank"
        if len(line) > MAX_LINE and path.endswith(C_SUFFIXES) and not path.endswith(".def"):
            yield number, f"{len(line)} columns, at most {MAX_LINE}"
        if MACHINE_PATH.search(line) and not path.startswith("tests/"):
            yield number, "path of one machine"
    for match in re.finditer(r"^(?:typedef\b[^;{}]*?|\})\s*\b(\w+_t)\s*;", code, re.M):
        yield line_of(code, match.start(1)), f"{match.group(1)}: names in _t belong to POSIX"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"


def options(path, text, code):
    """The library's messages name fields (%output=FILE); the tool adds the option, unless a whole command is named."""
    if path.startswith(("libckpt/", "formats/")) and path.endswith((".c", ".h")):
        for match in re.finditer(r'"(?:[^"\n]*--[a-z]|(?![^"\n]*\bckpt [a-z])[^"\n]*-o [A-Z])', text):
            yield line_of(text, match.start()), "a message of the library names an option of the tool"


RULES = (file_length, function_length, calls, raw_product, comments, phrases, opening, spelling, options)
TEXT_RULES = (phrases, spelling)  # for files that are not C


def lint_text(path, text):
    """All (line, message) of one file."""
    is_c = path.endswith(C_SUFFIXES)
    code = code_of(text) if is_c else ""
    return sorted(found for rule in (RULES if is_c else TEXT_RULES) for found in rule(path, text, code))


def sources(root):
    """Paths below root that the rules apply to."""
    top = {"libckpt", "formats", "kernels", "tools", "trainer", "tests", "bench", "docs", "cmake"}
    data = {"data", "corpus", "golden", "golden-errors", "goldens", "__pycache__"}
    for folder, names, files in os.walk(root):
        here = os.path.relpath(folder, root)
        names[:] = sorted(n for n in names if (n in top if here == "." else n not in data))
        for name in sorted(files):
            path = name if here == "." else f"{here}/{name}"
            if name.endswith((*C_SUFFIXES, ".py", ".sh", ".cmake", ".md")) or name in ("dev", "CMakeLists.txt", "run"):
                yield path


def missing_paths(path, text, files):
    """Paths that a page names and that are none of the files (a set, with their folders)."""
    names = {file.rsplit("/", 1)[-1] for file in files}

    def exists(name):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if "foo" in name:  # where it goes exists
            return name[:name.index("foo")].rpartition("/")[0] in files
        if name.rstrip("/") in files or beside in files:
            return True
        if "*" in name or "{" in name:
            pattern = re.escape(name).replace(r"\*", "[^/]*").replace(r"\{", "(").replace(r"\}", ")").replace(",", "|")
            return any(re.fullmatch(pattern, file) for file in files)
        return False

    for match in PATH.finditer(text):
        if not exists(match.group(1).rstrip(".,")):
            yield line_of(text, match.start()), f"{match.group(1)}: there is no such file"
    for match in ROOM_PATH.finditer(text):
        yield line_of(text, match.start()), f"{match.group(1)}: write its path from the root"
    for match in FILE_NAME.finditer(text):
        name = match.group(1)
        if not ROOM_PATH.match(match.group(0)) and "foo" not in name and not PATH.match(name) and not (name in names if "/" not in name else exists(name)):
            yield line_of(text, match.start()), f"{name}: there is no such file (write its path from the root)"


def pages(root):
    """Every path that a page of the root or of docs/ names exists."""
    files = set()
    for folder, names, found in os.walk(root):
        here = os.path.relpath(folder, root)
        names[:] = [n for n in names if n not in (".git", "build", "__pycache__")]
        files.update(os.path.normpath(os.path.join(here, name)) for name in (*names, *found))
    for path in sorted(files):
        if path.endswith(".md") and (path.startswith("docs/") or "/" not in path):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                for line, message in missing_paths(path, file.read(), files):
                    yield f"{path}:{line}: {message}"


def corpora(root):
    """Every corpus belongs to a fuzz target; otherwise it is never replayed."""
    fuzz = os.path.join(root, "tests/fuzz")
    folder = os.path.join(fuzz, "corpus")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not os.path.exists(os.path.join(fuzz, f"fuzz_{name}.c")):
            yield f"tests/fuzz/corpus/{name}:1: no tests/fuzz/fuzz_{name}.c replays it"


def is_named(path, names, texts):
    """Whether one of `names` (sources, pages of CMake) names a file of tests/."""
    name = path.rsplit("/", 1)[-1]
    as_module = rf"|^\s*(?:import|from)\s+{name[:-3]}\b" if name.endswith(".py") else ""
    for other in names:
        if other == "tests/lint/lint_test.py" or name.rsplit(".", 1)[0] not in texts[other]:  # has made-up names
            continue
        if other.endswith("CMakeLists.txt") or other == "dev":
            near = os.path.relpath(path, os.path.dirname(other)) if other != "dev" else path
            pattern = rf"(?<![\w./-])(?:\$\{{\w+\}}/)?(?:{re.escape(near)}|{re.escape(path)})(?![\w/-])"
        else:
            pattern = rf"(?<![\w.-]){re.escape(name)}(?![\w/-])" + as_module
        if re.search(pattern, texts[other], re.M):
            return True
    return False


def loose_tests(texts):
    """Scripts and C sources of tests/ that nothing runs: they would never fail. CMake itself looks for *.cc.

    texts: {path: text} of tests/ and `dev`. Runs begin with what CMake and `dev` name; what has run may name others.
    """
    code = {path: rooms.blank_comments(text) if path.endswith(C_SUFFIXES) else re.sub(r"(?m)(?:^|(?<=\s))#.*", "", text)
            for path, text in texts.items() if not path.endswith(".md")}
    loose = {path for path in code if path.startswith("tests/") and path.endswith((".c", ".py", ".sh")) and
             not path.startswith(RUN_AS_FOUND)}
    new = set(code) - loose
    while new:
        new = {path for path in loose if is_named(path, new, code)}
        loose -= new
    for path in sorted(loose):
        yield f"{path}:1: no test runs it (name it in the CMakeLists.txt of its folder, or above)"


def tests(root):
    """{path: text} for loose_tests."""
    texts = {}
    for path in sources(root):
        if path == "dev" or path.startswith("tests/"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts[path] = file.read()
    return texts


def main(root):
    n_files = n_found = 0
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        n_files += 1
        for line, message in lint_text(path, text):
            print(f"{path}:{line}: {message}")
            n_found += 1
    for message in (*corpora(root), *loose_tests(tests(root)), *pages(root), *rooms.check(rooms.sources(root)), *rooms.nouns(rooms.sources(root))):
        print(message)
        n_found += 1
    print(f"lint: {n_files} files, {n_found} found")
    return 1 if n_found or not n_files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")))
