"""Writes text/train.txt and text/eval.txt: plain English for small models, our own (the grammar below and docs/).

The two files are committed; docs/ has moved on since. Stories and descriptions come from the grammar with a fixed seed, prose from paragraphs of docs/*.md without tables and
code. One paragraph in eight goes to eval.txt, whole, and none of its sentences stands in train.txt.
Python alone:  python3 make_text.py
"""
import os
import random
import re
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "text")
rng = random.Random(20)

PEOPLE = ["Anna", "Ben", "Clara", "David", "Eva", "Felix", "Greta", "Henry", "Ida", "Jonas", "Klara", "Leo", "Maria",
          "Nora", "Oscar", "Paula", "Rosa", "Simon", "Tom", "Vera"]
JOBS = {"baker": ("bakery", ["bread", "rolls", "a cake", "dough"]), "farmer": ("farm", ["wheat", "apples", "hay", "milk"]),
        "teacher": ("school", ["books", "letters", "numbers", "a map"]), "sailor": ("harbour", ["ropes", "a sail", "fish", "a chart"]),
        "carpenter": ("workshop", ["a table", "boards", "a chair", "a door"]), "doctor": ("clinic", ["medicine", "bandages", "tea", "notes"]),
        "gardener": ("garden", ["roses", "seeds", "beans", "a hedge"]), "miller": ("mill", ["flour", "grain", "sacks", "a wheel"]),
        "printer": ("print shop", ["paper", "ink", "a poster", "a book"]), "potter": ("pottery", ["clay", "bowls", "a vase", "cups"])}
ANIMALS = ["cat", "dog", "horse", "goat", "duck", "fox", "owl", "mouse", "hen", "donkey"]
COLOURS = ["red", "green", "blue", "white", "black", "brown", "grey", "yellow"]
SIZES = ["small", "large", "old", "new", "quiet", "strong", "young", "tired", "happy", "clever"]
PLACES = ["village", "river", "forest", "hill", "bridge", "market", "station", "church", "lake", "valley"]
THINGS = ["a lamp", "a key", "a letter", "a basket", "a clock", "a coat", "a box", "a kettle", "a rope", "a bell",
          "a hammer", "a blanket"]
WEATHER = ["it rained", "the sun shone", "snow fell", "the wind was strong", "fog lay over the fields", "it was warm",
           "the sky was clear", "a storm came up"]
TIMES = ["In the morning", "At noon", "In the evening", "On Monday", "On Sunday", "After lunch", "Before sunset",
         "Early the next day", "Late at night", "In spring", "In winter", "One day"]
FEELINGS = ["glad", "surprised", "worried", "proud", "curious", "calm", "hungry", "cold"]
NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "ten", "twelve", "twenty"]
FOOD = ["soup", "bread and cheese", "an apple", "warm milk", "a piece of cake", "potatoes", "fish and rice", "eggs"]


def pick(items):
    return rng.choice(items)


def plural(noun):
    irregular = {"mouse": "mice", "fox": "foxes"}
    return irregular.get(noun, noun + "s")


def she(name):
    return "she" if name[-1] == "a" else "he"


def her(name):
    return "her" if name[-1] == "a" else "his"


def story():
    """A person, a place, a small trouble, and how it ends: the same names all through."""
    name, friend = rng.sample(PEOPLE, 2)
    job = pick(sorted(JOBS))
    place, goods = JOBS[job]
    animal, colour, where, thing = pick(ANIMALS), pick(COLOURS), pick(PLACES), pick(THINGS)
    bare = thing.split(" ", 1)[1]
    who, whose = she(name), her(name)
    lines = [
        pick([f"{name} was a {pick(SIZES)} {job} who lived near the {where}.",
              f"There was once a {job} called {name}, whose {place} stood by the {where}.",
              f"{name} worked as a {job} in a {pick(SIZES)} {place}."]),
        pick([f"Every day {who} worked with {pick(goods)} and {pick(goods)}.",
              f"{who.capitalize()} had {pick(NUMBERS)} {plural(pick(ANIMALS))} and one {colour} {animal} that followed {whose} cart.",
              f"People came from the {pick(PLACES)} because {whose} {place} was known for {pick(goods)}."]),
        pick([f"{pick(TIMES)} {pick(WEATHER)}, and {name} could not find {thing}.",
              f"{pick(TIMES)} {friend} came to the {place} and asked for {thing}.",
              f"{pick(TIMES)}, when {pick(WEATHER)}, the {animal} ran away with {thing}."]),
        pick([f"{name} looked under the table, behind the door and in the {colour} box.",
              f"\"Where is the {bare}?\" asked {name}. \"I saw it by the {where},\" said {friend}.",
              f"{who.capitalize()} was {pick(FEELINGS)}, for {who} needed the {bare} before the day was over."]),
        pick([f"Then {friend} remembered that the {bare} was still at the {pick(PLACES)}.",
              f"Together they walked {pick(NUMBERS)} miles to the {pick(PLACES)} and back.",
              f"The {animal} sat on the {bare} and looked at them as if nothing had happened."]),
        pick([f"In the end {name} found the {bare}, and they ate {pick(FOOD)} by the fire.",
              f"{name} thanked {friend} and gave {'her' if she(friend) == 'she' else 'him'} {pick(FOOD)}.",
              f"So the {bare} was where it should be, and {name} was {pick(FEELINGS)} again."]),
    ]
    return " ".join(lines)


def sums():
    """A shop with arithmetic that is right."""
    name, n, m = pick(PEOPLE), rng.randint(2, 12), rng.randint(2, 9)
    fruit = pick(["apples", "pears", "plums", "eggs", "rolls", "cups", "candles"])
    k = rng.randint(1, n * m - 1)
    return pick([
        f"{name} has {n} boxes with {m} {fruit} in each, so there are {n * m} {fruit}. {she(name).capitalize()} gives away {k} and keeps {n * m - k}.",
        f"A bag of {fruit} costs {n} coins. For {m} bags {name} pays {n * m} coins, and with {n * m + k} coins {she(name)} has {k} left.",
        f"There were {n + m} {fruit} on the table. {name} took {m} of them, and {n} stayed where they were."])


def description():
    animal, place, colour = pick(ANIMALS), pick(PLACES), pick(COLOURS)
    return " ".join([
        f"The {place} is {pick(['a mile', 'two miles', 'a short walk', 'an hour'])} from the {pick(PLACES)}.",
        pick([f"In summer {plural(animal)} drink there, and children look for {colour} stones.",
              f"When {pick(WEATHER)}, nobody goes there but {pick(PEOPLE)} and {pick(['a', 'the'])} {colour} {animal}."]),
        pick([f"An old {pick(sorted(JOBS))} says that {pick(THINGS)} lies buried under the {pick(['oak', 'wall', 'steps', 'well'])}.",
              f"The road to it is {pick(['narrow', 'steep', 'wide', 'muddy'])}, and {pick(NUMBERS)} {pick(['trees', 'houses', 'posts'])} stand along it.",
              f"From there one can see the {pick(PLACES)} and, on a clear day, the {pick(PLACES)}."])])


def prose():
    """Paragraphs of our own docs that are sentences."""
    folder = os.path.join(here, "..", "..", "docs")
    for name in ("architecture.md", "digest.md", "casts.md", "records.md", "quantization.md", "formats/dcp.md",
                 "formats/torch.md", "formats/gguf.md"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
        for block in re.split(r"\n\s*\n", text):
            if re.match(r"\s*([#|>`-]|\d+\.)", block) or len(block) < 200:
                continue
            block = " ".join(block.split())
            block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)
            yield re.sub(r"[*`]", "", block)


paragraphs = list(prose())
paragraphs += [story() for _ in range(190)] + [sums() for _ in range(110)] + [description() for _ in range(110)]
rng.shuffle(paragraphs)
eval_part = paragraphs[::8]
train_part = [p for i, p in enumerate(paragraphs) if i % 8 != 0]
seen = {s for p in eval_part for s in re.split(r"(?<=[.?!])\s", p)}
train_part = [p for p in train_part if not seen & set(re.split(r"(?<=[.?!])\s", p))]
os.makedirs(out, exist_ok=True)
for name, part in (("train.txt", train_part), ("eval.txt", eval_part)):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write("\n\n".join(part) + "\n")
