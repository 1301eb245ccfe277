"""What a pickle describes, by Python's own reader (pickle._Unpickler) with names in place of classes: nothing is found,
imported or called. show() prints as ckpt_object_print does. Used by make_pickles.py and tests/libckpt/codec/pickle/mutants.py.
"""
import io
import pickle
import pickletools

PRINT_DEPTH = 64


class Name:
    def __init__(self, module, name):
        self.name = module + "." + name


class Node:
    """What a call, a persistent id or a container with extras became."""

    def __init__(self, name, items):
        self.name, self.items, self.extras = name, items, {}


class Pairs:
    """A dict as it was written: keys need not be hashable, and may come twice."""

    def __init__(self, pairs=(), is_ordered=False):
        self.pairs, self.is_ordered, self.extras = list(pairs), is_ordered, {}


class Items:
    """A set as it was written."""

    def __init__(self, items=()):
        self.items = list(items)


class Refused(Exception):
    pass


def is_name(value, *names):
    return isinstance(value, Name) and value.name in names


def is_latin1(args):
    return len(args) == 2 and isinstance(args[0], str) and args[1] in ("latin1", "latin-1")


def model(func, args):
    """The calls that are plain data; None for others."""
    name, n = func.name, len(args)
    if name == "collections.OrderedDict":
        if n == 0:
            return Pairs(is_ordered=True)
        if n == 1 and isinstance(args[0], (list, tuple)):
            if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in args[0]):
                return Pairs([tuple(pair) for pair in args[0]], True)
    name = name.replace("__builtin__.", "builtins.").replace("copy_reg.", "copyreg.")
    if name in ("builtins.set", "builtins.frozenset") and n <= 1:
        if n == 0 or isinstance(args[0], (list, tuple)):
            return Items(args[0] if n else ())
    if name in ("builtins.bytes", "builtins.bytearray") and n == 0:
        return b""
    if name == "builtins.bytearray" and n == 1 and isinstance(args[0], (bytes, bytearray)):
        return args[0]
    if name in ("_codecs.encode", "builtins.bytearray") and is_latin1(args):
        try:
            return args[0].encode("latin-1")
        except UnicodeEncodeError:
            return None
    if name == "copyreg._reconstructor" and n == 3 and isinstance(args[0], Name) and args[2] is None:
        if is_name(args[1], "builtins.object", "__builtin__.object"):
            return Node(args[0].name, [])
    return None


def call(func, args, is_new=False):
    if not isinstance(args, tuple):
        raise Refused("arguments that are no tuple")
    if isinstance(func, Name):
        known = None if is_new else model(func, args)
        return Node(func.name, list(args)) if known is None else known
    if isinstance(func, Node):
        return Node("", [func, *args])
    raise Refused("a call of no function")


class Reader(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, file):
        super().__init__(file, fix_imports=False)
        self.names, self.found = {}, []

    def find_class(self, module, name):
        if not module or not name or "\0" in module + name:
            raise Refused("an odd name")
        self.found.append(module + "." + name)
        return self.names.setdefault((module, name), Name(module, name))

    def get_extension(self, code):
        if code <= 0:
            raise Refused("extension code")
        self.append(self.find_class("copyreg extension", str(code)))

    def persistent_load(self, pid):
        return Node("persistent id", [pid])

    def _decode_string(self, value):
        try:
            return value.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return value

    def _instantiate(self, klass, args):
        self.append(call(klass, tuple(args)))

    def contents(self, kind, extra, types):
        target = self.stack[-1]
        if isinstance(target, types):
            return target
        if not isinstance(target, Node):
            raise Refused("a value of another kind")
        return target.extras.setdefault(extra, kind())

    def do_reduce(self):
        args = self.stack.pop()
        self.stack[-1] = call(self.stack[-1], args)

    def do_newobj(self):
        args = self.stack.pop()
        self.stack[-1] = call(self.stack[-1], args, True)

    def do_newobj_ex(self):
        keywords, args = self.stack.pop(), self.stack.pop()
        if not isinstance(keywords, Pairs):
            raise Refused("keywords")
        node = call(self.stack[-1], args, True)
        if keywords.pairs:
            node.extras["keywords"] = keywords
        self.stack[-1] = node

    def do_build(self):
        state, target = self.stack.pop(), self.stack[-1]
        if not (isinstance(target, Node) or isinstance(target, Pairs) and target.is_ordered):
            raise Refused("no attributes")
        if "state" in target.extras:
            raise Refused("a second state")
        target.extras["state"] = state

    def do_append(self):
        value = self.stack.pop()
        self.contents(list, "list", list).append(value)

    def do_appends(self):
        values = self.pop_mark()
        self.contents(list, "list", list).extend(values)

    def do_setitem(self):
        value, key = self.stack.pop(), self.stack.pop()
        self.contents(Pairs, "dict", Pairs).pairs.append((key, value))

    def pairs(self):
        values = self.pop_mark()
        if len(values) % 2:
            raise Refused("odd")
        return list(zip(values[::2], values[1::2]))

    def do_dict(self):
        pairs = self.pairs()
        self.append(Pairs(pairs))  # pop_mark has changed self.append

    def do_frozenset(self):
        items = self.pop_mark()
        self.append(Items(items))

    def do_setitems(self):
        pairs = self.pairs()
        self.contents(Pairs, "dict", Pairs).pairs.extend(pairs)

    def do_additems(self):
        values = self.pop_mark()
        if not isinstance(self.stack[-1], Items):
            raise Refused("no set")
        self.stack[-1].items.extend(values)

    def do_buffer(self):
        raise Refused("buffer")

    def do_bytearray8(self):
        n, = pickle.unpack("<Q", self.read(8))
        self.append(self.read(n))

    for opcode, action in {
        "REDUCE": do_reduce, "NEWOBJ": do_newobj, "NEWOBJ_EX": do_newobj_ex, "BUILD": do_build, "APPEND": do_append,
        "APPENDS": do_appends, "SETITEM": do_setitem, "SETITEMS": do_setitems, "ADDITEMS": do_additems,
        "NEXT_BUFFER": do_buffer, "READONLY_BUFFER": do_buffer, "BYTEARRAY8": do_bytearray8,
        "EMPTY_DICT": lambda self: self.append(Pairs()), "EMPTY_SET": lambda self: self.append(Items()),
        "DICT": do_dict, "FROZENSET": do_frozenset,
    }.items():
        dispatch[getattr(pickle, opcode)[0]] = action


def read(data):
    """(graph, bytes read, names in the order in which opcodes name them)"""
    file = io.BytesIO(data)
    reader = Reader(file)
    root = reader.load()
    rest = reader._unframer.current_frame
    return root, file.tell() - (len(rest.read()) if rest else 0), reader.found


def positions(data):
    """Offsets of the opcodes that name classes."""
    return [at for op, _, at in pickletools.genops(data)
            if op.name in ("GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4")]


def escape(text):
    out = []
    for c in text:
        if c in '"\\':
            out.append("\\" + c)
        elif c == "\n":
            out.append("\\n")
        elif c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff":
            out.append("\\u%04x" % ord(c))
        else:
            out.append(c)
    return "".join(out)


def show_float(value):
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    text = next((t for t in ("%.15g" % value, "%.16g" % value) if float(t) == value), "%.17g" % value)
    return text if "." in text or "e" in text else text + ".0"


def show_key(key, depth, in_key):
    if isinstance(key, str):
        return '"%s"' % escape(key)
    text = show(key, depth, True)
    return '"%s"' % (text if in_key else text.replace("\\", "\\\\").replace('"', '\\"'))


def show_pairs(pairs, depth, in_key):
    return "{%s}" % ", ".join(show_key(k, depth + 1, in_key) + ": " + show(v, depth + 1, in_key) for k, v in pairs)


class TooLong(Exception):
    """Printing would go on and on: few nodes, held many times."""


def show(value, depth=0, in_key=False, left=[0]):
    left[0] = 20000 if depth == 0 and not in_key else left[0] - 1
    if left[0] < 0:
        raise TooLong
    if depth > PRINT_DEPTH:
        return '"..."'
    if value is None:
        return "null"
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if isinstance(value, float):
        return show_float(value)
    if isinstance(value, str):
        return '"%s"' % escape(value)
    if isinstance(value, (bytes, bytearray)):
        return '"<%d bytes>"' % len(value)
    if isinstance(value, Name):
        return '"<%s>"' % escape(value.name)
    if isinstance(value, (Pairs, Node)) and value.extras or isinstance(value, Node):
        name = value.name if isinstance(value, Node) else "collections.OrderedDict"
        body = (show(value.items, depth, in_key) if isinstance(value, Node) else
                show_pairs(value.pairs, depth, in_key))
        for extra in ("keywords", "list", "dict", "state"):
            if extra in value.extras:
                body += ', "%s": %s' % (extra, show(value.extras[extra], depth + 1, in_key))
        return '{"%s": %s}' % (escape(name), body)
    if isinstance(value, Pairs):
        return show_pairs(value.pairs, depth, in_key)
    items = value.items if isinstance(value, Items) else value
    return "[%s]" % ", ".join(show(item, depth + 1, in_key) for item in items)
