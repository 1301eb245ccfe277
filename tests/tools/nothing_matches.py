"""An option that names tensors or keys, with a value that matches nothing, is exit 1, in every verb that takes it.

nothing_matches.py DATA looks at the help of every verb: an option that is new is tried at once, and one whose value is
of a kind that no table here has is a failure, so that somebody says what it is. What is printed is wrong, but the last
line.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

# The kinds of values that name something of the input, with one that matches nothing.
NAMES = {
    "PATTERN": "no.such.tensor",
    "[PATTERN=]DTYPE": "no.such.tensor=bf16",
    "REGEX=TYPE": "no_such_tensor=Q8_0",
    "s/RE/REPL/": "s/no_such_tensor/x/",
    "KEY": "no.such.key",
    "OLD=NEW": "no/such/input=here",
}
# Those that name nothing of it. A key that is set may be new.
OTHERS = {"FORMAT", "DTYPE", "TYPE", "SIZE", "N", "X", "LEVEL", "PATH", "FILE", "FILE.jsonl", "MODEL", "MODEL.onnx", "OUT",
          "OLD", "REF", "TEXT", "DIR", "DIR[=SCALE]", "KEY=VALUE", "NAME", "ckpt1:HEX"}
# Words of the command line before the option; a verb with such an option has to be here.
LINES = {
    "ls": ["{llama}"],
    "hash": ["{llama}"],
    "diff": ["{llama}", "{llama}"],
    "verify": ["{llama}"],
    "cat": ["{llama}", "model.norm.weight"],
    "inspect": ["{llama}"],
    "convert": ["{llama}", "-o", "{out}"],
    "split": ["{llama}", "-o", "{out}", "--shard-size", "1M"],
    "join": ["{llama}", "-o", "{out}.safetensors"],
    "merge": ["{adapters}/base", "--adapter", "{adapters}/adapter", "-o", "{out}"],
    "consolidate": ["{dcp}", "-o", "{out}"],
    "reshard": ["{dcp}", "-o", "{out}", "--to", "dcp"],
    "quantize": ["{llama}", "-o", "{out}.gguf", "--type", "Q8_0", "--allow-fallback"],
}
# Where an option says something only of another input.
LINES_OF = {("convert", "--remove"): ["{gguf}", "-o", "{out}.gguf"]}


def run(line, places):
    out = os.path.join(places["folder"], "out")
    words = [word.format(out=out, **places) for word in line]
    done = subprocess.run(["ckpt", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    for name in os.listdir(places["folder"]):
        path = os.path.join(places["folder"], name)
        if name.startswith("out"):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            if done.returncode != 0:
                print("%s: failed and left %s" % (" ".join(words), name))
    return done.returncode, (done.stdout + done.stderr).strip()


def verbs():
    help_text = subprocess.run(["ckpt", "help"], capture_output=True, text=True).stdout
    known = [word for word in re.findall(r"^  (?:ckpt )?([a-z]+)\b", help_text, re.M)]
    return [v for v in dict.fromkeys(known)
            if subprocess.run(["ckpt", "help", v], capture_output=True).returncode == 0]


def options(verb):
    """(option, metavar) of its help."""
    text = subprocess.run(["ckpt", "help", verb], capture_output=True, text=True).stdout
    return re.findall(r"^  (?:-\w, )?(--[a-z-]+) (\S+)", text.split("\nOptions:", 1)[-1], re.M)


def main(data):
    n_tried, found = 0, verbs()
    failed = [] if len(found) >= 10 else ["ckpt help lists only %s" % found]
    with tempfile.TemporaryDirectory() as folder:
        places = {"folder": folder, "llama": data + "/llama-tiny", "dcp": data + "/dcp/fsdp4",
                  "adapters": data + "/adapters/linear", "gguf": data + "/gguf/tiny-llama-f16.gguf"}
        for verb in found:
            is_sound = {}
            for option, metavar in options(verb):
                value = NAMES.get(metavar)
                if value is None:
                    if metavar not in OTHERS and metavar != metavar.lower():  # else the word itself, one of some
                        failed.append("%s %s %s: is it a name? (tests/tools/nothing_matches.py)" % (verb, option, metavar))
                    continue
                line = LINES_OF.get((verb, option), LINES.get(verb))
                if line is None:
                    failed.append("%s %s: no command line to try it with" % (verb, option))
                    continue
                key = tuple(line)
                if key not in is_sound:
                    code, said = run([verb, *line], places)
                    is_sound[key] = code == 0
                    if code != 0:
                        failed.append("%s without the option: exit %d: %s" % (verb, code, said[-300:]))
                code, said = run([verb, *line, option, value], places)
                n_tried += 1
                if code != 1:
                    failed.append("%s %s %s: exit %d: %s" % (verb, option, value, code, said[-300:]))
                elif not re.search("no.such", said):
                    failed.append("%s %s %s: the message does not name it: %s" % (verb, option, value, said[-300:]))
        code, said = run(["cat", places["llama"], "no.such.tensor"], places)
        if code != 1 or "no.such.tensor" not in said:
            failed.append("cat: exit %d: %s" % (code, said))
    print("\n".join(failed + ["every value that matches nothing is refused" if not failed and n_tried >= 6 else
                              "%d wrong of %d" % (len(failed), n_tried)]))
    return failed != [] or n_tried < 6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
