#!/usr/bin/env python3
"""Proves that lint.py and messages.py can fail: each rule meets snippets it must refuse, at the line given, and ones it
must not; a text that no test has seen is listed."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint
import messages
import rooms

# rule, path, snippet, lines that must be found
CASES = [
    (lint.file_length, "libckpt/a.c", "int x;\n" * 800, []),
    (lint.file_length, "libckpt/a.c", "int x;\n" * 801, [801]),
    (lint.function_length, "libckpt/a.c", "static int f(int a,\n             int b) {\n" + "  a++;\n" * 77 + "}\n", []),
    (lint.function_length, "libckpt/a.c", "static int f(int a,\n             int b) {\n" + "  a++;\n" * 78 + "}\n", [1]),
    (lint.function_length, "libckpt/a.c", "int g(void);\n\nint f(void)\n{\n" + "\n\n  a++;\n" * 27 + "}\n", [3]),
    (lint.function_length, "libckpt/a.c", "int f(void) {\n" + "  a++;\n" * 78 + "done:\n  b++;\n}\n", [1]),
    (lint.function_length, "libckpt/a.c", "static const int rows[] = {\n" + "  1,\n" * 200 + "};\n", []),
    (lint.calls, "libckpt/a.c", "  strcpy(a, b);\n  x = sprintf (a, b);\n  abort();\n", [1, 2, 3]),
    (lint.calls, "libckpt/a.c", '  f("strcpy(a)"); /* abort() */\n  // exit(1)\n  my_exit(1);\n', []),
    (lint.calls, "libckpt/a.c", "  fprintf(stderr, text);\n", [1, 1]),
    (lint.calls, "libckpt/source.c", "  bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);\n", [1]),
    (lint.calls, "kernels/ref/a.c", "  printf(text);\n  exit(1);\n", [1, 2]),
    (lint.calls, "tools/a.c", "  printf(text);\n  exit(1);\n", []),
    (lint.calls, "tools/a.c", "  system(text);\n  n = atoi(text);\n", [1, 2]),
    (lint.calls, "formats/a.c", "  time(NULL);\n  srand(rand());\n  getenv(name);\n", [1, 2, 3]),
    (lint.calls, "formats/a.c", "  format->open(path);\n  options.time(1);\n  ckpt_open(path);\n", []),
    (lint.calls, "formats/a.c", "  fd = open(path, O_RDONLY);\n", [1]),
    (lint.calls, "libckpt/source_file.c", "  fd = open(path, O_RDONLY);\n", []),
    (lint.raw_product, "libckpt/a.c", "  p = malloc(n * 4);\n", [1]),
    (lint.raw_product, "libckpt/a.c", "  p = malloc((n + 1) * sizeof *p);\n", [1]),
    (lint.raw_product, "formats/a.c", "  p = ckpt_arena_alloc(arena,\n                       n * size);\n", [1]),
    (lint.raw_product, "libckpt/a.c", "  p = malloc(sizeof *p);\n  q = calloc(n, sizeof *q);\n  r = a * b;\n", []),
    (lint.comments, "libckpt/ckpt.h", "/* Says. */\nint f(int a,\n      int b);\nint g(void); /* as above */\n", []),
    (lint.comments, "libckpt/ckpt.h", "/* Says. */\nint f(void);\nint g(void);\n", [3]),
    (lint.comments, "libckpt/ckpt.h", "/* Says. */\n\nint g(void);\n", [3]),
    (lint.comments, "libckpt/ckpt.h", "typedef struct ckpt_x ckpt_x;\nstruct ckpt_x {\n  int a; /* says */\n};\n", [2]),
    (lint.comments, "libckpt/ckpt.h", '/* Says. */\ntypedef struct a {\n  int b;\n} a;\nextern "C" {\n', []),
    (lint.comments, "formats/a.h", "typedef enum a {\n  B\n} a;\n\nextern int f(void);\n", [5]),
    (lint.comments, "libckpt/a.h", "/* Says. */\nstatic inline int f(int a) {\n  return a;\n}\nint g(void);\n", [5]),
    (lint.phrases, "README.md", "Of a file that is missing in it the name is said.\n\nIt\nstands beside it.\n", [1, 1, 4]),
    (lint.phrases, "docs/formats/a.md", "It is said.\n", []),
    (lint.phrases, "README.md", "A missing file is reported by name. There is none.\n", []),
    (lint.phrases, "libckpt/base/a.h", "int is_said; /* one */\nint b; /* what is\n           * there */\n", [2]),
    (lint.phrases, "libckpt/base/a.c", "/* what is there */\n", []),
    *((lint.phrases, f"{folder}/a.h", "/* what is there */\n", [1]) for folder in
      ("formats/arch", "formats", "kernels/cpu/quant", "tools/cli", "trainer/model")),
    (lint.opening, "libckpt/a.c", "/* a.c - says. */\n", []),
    (lint.opening, "libckpt/a.c", "#include <stdio.h>\n", [1]),
    (lint.spelling, "libckpt/a.c", "int a;\n\tint b;\nint c; \n" + "x" * 121 + "\nint d;", [2, 3, 4, 5]),
    (lint.spelling, "libckpt/a.c", "x" * 120 + "\n", []),
    (lint.spelling, "libckpt/a.c", 'f("/tmp/x");\nf("a/tmp/x");\n// see /home/me/x\n// ./work/x\n', [1, 3]),
    (lint.options, "libckpt/a.c", '// "--a"\nf("use --a");\nf("a -- b", "--");\n', [1, 2]),
    (lint.options, "libckpt/a.c", 'f("a file (-o NAME)");\nf("ckpt hash -o FILE writes one");\n', [1]),
    (lint.options, "tools/a.c", 'f("use --a");\n', []),
    (lint.spelling, "libckpt/a.h", "typedef unsigned my_size_t;\ntypedef struct a {\n  size_t b;\n} a_t;\nuint8_t c;\n", [1, 4]),
]


class Lint(unittest.TestCase):
    def test_each_rule(self):
        for rule, path, snippet, lines in CASES:
            with self.subTest(rule=rule.__name__, path=path, snippet=snippet[:80]):
                self.assertEqual([line for line, _ in rule(path, snippet, lint.code_of(snippet))], lines)

    def test_every_rule_has_a_case_that_fails(self):
        self.assertEqual({rule for rule, _, _, lines in CASES if lines}, set(lint.RULES))

    def test_paths_of_pages(self):
        files = {"libckpt", "libckpt/run", "libckpt/run/run.c", "docs/digest.md", "kernels/ref/quant/iq1.c", "formats"}
        page = ("see libckpt/run/run.c, `run.c`, libckpt/run/, [it](digest.md) and kernels/ref/quant/iq*.c.\n"
                "add formats/foo.c\nsee libckpt/run.c.\nand `walk.c`\nand `run/run.c`\n")
        self.assertEqual(sorted(line for line, _ in lint.missing_paths("docs/a.md", page, files)), [3, 4, 5])

    def test_paths_that_stand_for_others_and_begin_with_a_room(self):
        files = {"libckpt", "libckpt/run", "libckpt/run/run.c", "libckpt/recipe/scan", "libckpt/recipe/scan/scan.c", "formats"}
        page = ("`formats/foo.c` `formats/foo/foo.c` `libckpt/run/foo.c` `formats/foo/`\n"
                "`formats/hf/foo.c` in libckpt/ops/foo.c\n`libckpt/recipe/scan/*.c` bytes run/second `recipe/`\n"
                "`recipe/scan*.c`\n`run/run.c`\n`recipe/scan/`\n")
        self.assertEqual([line for line, _ in lint.missing_paths("docs/a.md", page, files)], [2, 2, 4, 5, 6])

    def test_tests_that_nothing_runs(self):
        texts = {"dev": "python3 tests/summary.py\n", "tests/summary.py": "", "tests/faults/kills.py": "import scratch\n",
                 "tests/CMakeLists.txt": "add_test(${HERE}/faults/kills.py) # faults/never.py\nadd_executable(a libckpt/copy.c)\n"
                                         "add_test(install/run.sh ${DIR}/memory/memory.py)\n",
                 "tests/faults/scratch.py": "", "tests/libckpt/copy.c": "", "tests/memory/memory.py": "",
                 "tests/lint/CMakeLists.txt": "add_test(${HERE}/lint_test.py)\n", "tests/lint/lint_test.py": "",
                 "tests/install/run.sh": 'cc "$here/consumer.c"\n', "tests/install/consumer.c": "",
                 "tests/a_test.cc": 'run("tiny.py"); // never2.py\n', "tests/tools/tiny.py": "", "tests/data/a/make.py": ""}
        self.assertEqual(list(lint.loose_tests(texts)), [])
        loose = {"tests/libckpt/x_test.c": "", "tests/faults/never.py": "import never2\n", "tests/faults/never2.py": "",
                 "tests/lint/never_test.py": "", "tests/io/x.sh": "", "tests/libckpt/io/copy.c": "", "tests/a.md": "x.sh\n"}
        self.assertEqual([line.split(":")[0] for line in lint.loose_tests({**texts, **loose})],
                         sorted(path for path in loose if not path.endswith(".md")))

    def test_code_keeps_its_lines(self):
        self.assertEqual(lint.code_of('a /* b\nc */ d "e\\"f" // g\n\'"\' h'), 'a     \n     d "    "     \n\' \' h')

    def test_nothing_to_check_is_a_failure(self):
        self.assertEqual(lint.main(os.path.join(os.path.dirname(os.path.abspath(__file__)), "no-such-folder")), 1)


HOUSE = rooms.sources(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


TOPS = ("libckpt", "kernels", "formats", "trainer", "tools")


class Rooms(unittest.TestCase):
    def planted(self, path, target):
        """What is wrong with it where `path` includes `target`."""
        texts = {path: f'#include "{target}"\n', target: ""}
        return [line for line in rooms.check(texts) if line.startswith(f"{path}: {target} ")]

    def test_the_house_as_it_is(self):
        self.assertEqual(list(rooms.check(HOUSE)), [])
        self.assertEqual(list(rooms.nouns(HOUSE)), [])

    def test_an_include_up_is_seen_from_every_room(self):
        for room in sorted(set(map(rooms.room_of, HOUSE))):
            path = next(path for path in sorted(HOUSE) if rooms.room_of(path) == room)
            if path in rooms.PUBLIC or room.startswith("tools"):
                continue  # nothing is above the command
            with self.subTest(room=room):
                self.assertTrue(self.planted(path, "tools/cli/options.h"))

    def test_rooms_of_libckpt_in_their_order(self):
        order = ("base", "io", "index", "format", "extents", "plan", "run", "codec", "recipe")
        for low, high in zip(order, order[1:]):
            with self.subTest(low=low, high=high):
                self.assertEqual(len(self.planted(f"libckpt/{low}/a.c", f"libckpt/{high}/a.h")), 1)
                self.assertEqual(self.planted(f"libckpt/{high}/a.c", f"libckpt/{low}/a.h"), [])

    def test_an_include_up_or_sideways_between_parts(self):
        for path, wrong, right in (
                ("libckpt/recipe/a.c", "kernels/ref/a.h formats/gguf/a.h trainer/loop/a.h tools/cli/a.h", "libckpt/base/a.h"),
                ("kernels/cpu/a.c", "libckpt/io/a.h libckpt/index/a.h formats/gguf/a.h trainer/loop/a.h tools/cli/a.h "
                 "kernels/cuda/tape/a.h", "libckpt/base/a.h libckpt/ckpt.h kernels/ref/a.h kernels/cpu/cast/a.h"),
                ("kernels/cuda/tape/a.cu", "kernels/cpu/a.h", "kernels/ref/tape/a.h kernels/cuda/load/a.h"),
                ("kernels/ref/a.c", "kernels/cpu/a.h kernels/cuda/a.h", "kernels/ref/quant/a.h"),
                ("formats/gguf/a.c", "libckpt/recipe/a.h kernels/ref/a.h formats/hf/a.h formats/loose.h trainer/loop/a.h "
                 "tools/cli/a.h", "libckpt/codec/a.h formats/gguf/a.h formats/formats.def"),
                ("formats/gguf/registry.c", "formats/hf/a.h", ""),
                ("formats/safetensors.c", "formats/hf/a.h formats/imatrix.h", "formats/formats.def"),
                ("formats/registry.c", "trainer/loop/a.h", "formats/hf/a.h formats/arch/a.h"),
                ("trainer/loop/a.c", "tools/cli/a.h", "libckpt/recipe/a.h formats/hf/a.h kernels/cpu/a.h trainer/data/a.h"),
                ("tools/cmd/a.c", "attic/a.h ../cli/a.h", "trainer/loop/a.h formats/hf/a.h kernels/ref/a.h tools/cli/a.h")):
            for target in wrong.split():
                with self.subTest(path=path, wrong=target):
                    self.assertEqual(len(self.planted(path, target)), 1)
            for target in right.split():
                with self.subTest(path=path, right=target):
                    self.assertEqual(self.planted(path, target), [])

    def test_an_include_sideways_is_seen_from_every_file(self):
        for path in sorted(HOUSE):
            here = path.split("/")
            if here[0] == "formats" and here[-1] != "registry.c":
                others = [other for other in HOUSE if other.startswith("formats/") and other.count("/") > 1 and
                          other.split("/")[1] != here[1]]
                wrong = [others[0], "kernels/ref/quant/quant.h", "libckpt/recipe/verify/verify.h"]
            elif here[0] == "kernels":
                wrong = ["formats/gguf/gguf.h", "libckpt/index/index.h"]
            elif path.startswith("libckpt/recipe/"):
                wrong = ["formats/gguf/gguf.h", "kernels/ref/quant/quant.h"]
            else:
                continue
            for target in wrong:
                with self.subTest(path=path, target=target):
                    self.assertTrue(self.planted(path, target))

    def test_ways_to_write_an_include(self):
        for line in ('#include "libckpt/run/run.h"', "#include <libckpt/run/run.h>", '/* x */ #include "libckpt/run/run.h"',
                     '#/* x */include/* y */"libckpt/run/run.h"', ' # include "libckpt/run/run.h"', "#include<./libckpt/run/run.h>",
                     '#include \\\n"libckpt/run/run.h"', '%:include "libckpt/run/run.h"', '#include "libckpt/base/../run/run.h"',
                     '#include "../run/run.h"', "#include RUN"):
            with self.subTest(line=line):
                self.assertEqual(len(list(rooms.check({"libckpt/base/a.c": line + "\n"}))), 1)
        for line in ("#include <string.h>", "#include <sys/stat.h>", '// #include "libckpt/run/run.h"',
                     '/*\n#include "libckpt/run/run.h"\n*/', '#include "libckpt/base/a.h" /* for all */',
                     'x = "\\n#include <libckpt/run/run.h>";', "#include <openssl/tools/a.h>"):
            with self.subTest(line=line):
                self.assertEqual(list(rooms.check({"libckpt/base/a.c": line + "\n"})), [])

    def test_circles_and_full_rooms(self):
        path = "libckpt/recipe/select/select.h"
        texts = {**HOUSE, path: HOUSE[path] + '#include "libckpt/recipe/verify/verify.h"\n'}
        self.assertTrue([line for line in rooms.check(texts) if "a circle of rooms" in line])
        for room in ("libckpt/base", "kernels/ref/quant", "formats/dcp", "trainer/loop", "tools/report"):
            full = {f"{room}/more{i}.c": "" for i in range(31)}
            self.assertEqual(list(rooms.check(full)), [f"{room}: 31 files, at most 30 (it wants rooms)"])
            del full[f"{room}/more0.c"]
            self.assertEqual(list(rooms.check(full)), [])

    def test_files_in_no_room(self):
        for path, why in (("attic/a.c", "is in no part of the house"), ("a.c", "is in no part of the house"),
                          *((f"{top}/loose.c", "lies in no room") for top in TOPS),
                          *((f"{top}/attic/a.c", f"no room of {top} is called attic") for top in TOPS),
                          *((f"{top}/{room}/a{suffix}", "is no source of the house (.c .h .def .cu .cuh .map .proto)")
                            for top, room in zip(TOPS, ("run", "cpu", "gguf", "loop", "cmd"))
                            for suffix in (".inc", ".hpp", ".cc", ".md", ""))):
            with self.subTest(path=path):
                self.assertEqual(list(rooms.check({path: '#include "tools/a.h"\n' if path[0] == "a" else ""})), [f"{path}: {why}"])

    def test_files_that_the_walk_finds(self):
        with tempfile.TemporaryDirectory() as root:
            for path in ("libckpt/run/a.c", "libckpt/run/a.inc", "tools/cmd/a", "attic/a.c", "attic/notes.txt", "loose.c",
                         "README.md", "tests/a.c", "build/a.c", "build-old/a.c", ".git/a.c", "libckpt/__pycache__/a.c"):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8"):
                    pass
            self.assertEqual(sorted(rooms.sources(root)),
                             ["attic/a.c", "libckpt/run/a.c", "libckpt/run/a.inc", "loose.c", "tools/cmd/a"])

    def test_nouns_of_a_format(self):
        for line, n in (("int gguf_keys;\n", 1), ('x = "a DCP folder";\n', 1), ("/* as ONNX has it */\n", 0),
                        *((f"int of_{noun};\n", 1) for noun in
                          ("torch", "onnx", "gguf", "ggml", "dcp", "deepspeed", "megatron", "safetensors", "universal",
                           "peft", "pickle"))):
            for room in ("base", "io", "index", "format", "extents", "plan", "run"):
                with self.subTest(line=line, room=room):
                    self.assertEqual(len(list(rooms.nouns({f"libckpt/{room}/a.c": line}))), n)
            self.assertEqual(list(rooms.nouns({"libckpt/codec/a.c": line, "libckpt/recipe/a.c": line})), [])
        self.assertEqual(list(rooms.nouns({"libckpt/run/onnx_twins.c": "", "libckpt/plan/dcp/a.c": "", "libckpt/run/a.c": "",
                                           "libckpt/codec/gguf.c": "", "libckpt/base/dtype.def": "x_gguf"})),
                         ["libckpt/plan/dcp/a.c: dcp is a noun of one format",
                          "libckpt/run/onnx_twins.c: onnx is a noun of one format"])


# path, source, the texts that must be collected
TEXTS = [
    ("libckpt/a.c", 'const char *f(void) { return "cut off"; }\n', ["cut off"]),
    ("libckpt/a.c", 'static const char *const why[] = {"no list", "key", "a.c"};\n', ["no list"]),
    ("formats/a.c", 'x = is_end ? "ends early" : NULL; /* "in a comment" */ // "and one"\n', ["ends early"]),
    ("libckpt/a.c", '#include "a b.h"\n', []),
    ("libckpt/a.c", 'f("%" PRIu64 " bytes "\n  "of %s" /* "x" */ " (see 3)");\n', ["%u bytes of %s (see 3)"]),
    ("libckpt/a.c", '#define A \\\n  "one " \\\n  "two"\n', ["one two"]),
    ("libckpt/a.c", r'put(",\n  \"name\": %s"); fail("no \"name\": in it");', [r'no \"name\": in it']),
    ("tools/a.c", 'static option o = {"help of it"};\nint f(void) {\n  return g("bad value");\n}\n', ["bad value"]),
    ("tools/cli/man.c", 'int f(void) {\n  return g("a page");\n}\n', []),
]


class Messages(unittest.TestCase):
    def test_texts_are_collected(self):
        for path, source, texts in TEXTS:
            with self.subTest(path=path, source=source):
                self.assertEqual(messages.collect(path, source), texts)

    def check(self, source, *args, test=""):
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("libckpt/a.c", source), ("tests/libckpt/a_test.cc", test)):
                os.makedirs(os.path.dirname(os.path.join(root, path)))
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                return messages.main([root, *args]), out.getvalue()

    def test_the_style_of_the_house(self):
        self.assertEqual(self.check('return "damaged stream";\n')[0], 0)
        self.assertEqual(self.check('return "damaged stream."; ')[0], 1)
        self.assertEqual(self.check('return "Damaged stream"; ')[0], 1)

    def test_what_no_test_has_seen_is_listed(self):
        source = 'fail("%u of %s are damaged (%zu byte%s)");\n'
        for test, is_seen in (('EXPECT_EQ(text, "a: 3 of x are damaged (5 bytes)");', True),
                              ('EXPECT_EQ(text, "a: 3 of x are broken (5 bytes)");', False),
                              ('EXPECT_EQ(text, "a: 3 are damaged (5 bytes), of x");', False),
                              ('has(text, "are damaged");', True), ('has(text, "damaged");', False), ("", False)):
            with self.subTest(test=test):
                status, out = self.check(source, "--unseen", test=test)
                self.assertEqual((status, "libckpt/a.c\t%u of %s" in out), (0, not is_seen), out)
                self.assertIn("1 in the sources; tests have seen %d, not %d" % (is_seen, not is_seen), out)

    def test_a_text_of_few_letters_is_not_judged(self):
        self.assertIn("1 are too short", self.check('fail("%s of %s");\n', "--unseen")[1])


if __name__ == "__main__":
    unittest.main()
