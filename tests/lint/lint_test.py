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
    (lint.opening, "libckpt/a.c", "/* a.c - says. */\n", []),
    (lint.opening, "libckpt/a.c", "#include <stdio.h>\n", [1]),
    (lint.spelling, "libckpt/a.c", "int a;\n\tint b;\nint c; \n" + "x" * 121 + "\nint d;", [2, 3, 4, 5]),
    (lint.spelling, "libckpt/a.c", "x" * 120 + "\n", []),
    (lint.spelling, "libckpt/a.c", 'f("/tmp/x");\nf("a/tmp/x");\n// see /home/me/x\n// ./work/x\n', [1, 3]),
    (lint.options, "libckpt/a.c", '// "--a"\nf("use --a");\nf("a -- b", "--");\n', [1, 2]),
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
        files = {"libckpt", "libckpt/run", "libckpt/run/run.c", "docs/digest.md", "kernels/ref/quant/iq1.c"}
        page = ("see libckpt/run/run.c, `run.c`, libckpt/run/, [it](digest.md) and kernels/ref/quant/iq*.c.\n"
                "add formats/foo.c\nsee libckpt/run.c.\nand `walk.c`\nand `run/run.c`\n")
        self.assertEqual([line for line, _ in lint.missing_paths("docs/a.md", page, files)], [3, 4, 5])

    def test_code_keeps_its_lines(self):
        self.assertEqual(lint.code_of('a /* b\nc */ d "e\\"f" // g\n\'"\' h'), 'a     \n     d "    "     \n\' \' h')

    def test_nothing_to_check_is_a_failure(self):
        self.assertEqual(lint.main(os.path.join(os.path.dirname(os.path.abspath(__file__)), "no-such-folder")), 1)


HOUSE = rooms.sources(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


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
            if room.startswith("libckpt/") and not room.startswith("libckpt/recipe"):
                with self.subTest(room=room, to="recipe"):
                    self.assertTrue(self.planted(path, "libckpt/recipe/select/select.h"))

    def test_an_include_sideways_is_seen_from_every_part(self):
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

    def test_circles_full_rooms_and_files_in_no_room(self):
        path = "libckpt/recipe/select/select.h"
        texts = {**HOUSE, path: HOUSE[path] + '#include "libckpt/recipe/verify/verify.h"\n'}
        self.assertTrue([line for line in rooms.check(texts) if "a circle of rooms" in line])
        self.assertIn("libckpt/loose.c: lies in no room", rooms.check({**HOUSE, "libckpt/loose.c": ""}))
        self.assertIn("libckpt/attic/a.c: no room of libckpt is called attic",
                      rooms.check({**HOUSE, "libckpt/attic/a.c": ""}))
        full = {f"libckpt/base/more{i}.c": "" for i in range(rooms.MAX_FILES)}
        self.assertTrue([line for line in rooms.check({**HOUSE, **full}) if "it wants rooms" in line])

    def test_nouns_of_a_format(self):
        for line, n in (("int gguf_keys;\n", 1), ('x = "a DCP folder";\n', 1), ("/* as ONNX has it */\n", 0)):
            with self.subTest(line=line):
                self.assertEqual(len(list(rooms.nouns({"libckpt/plan/a.c": line}))), n)
                self.assertEqual(list(rooms.nouns({"libckpt/codec/a.c": line})), [])


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
