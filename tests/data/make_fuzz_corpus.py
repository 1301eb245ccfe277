"""Writes the seeds of tests/fuzz/corpus: small inputs that reach different code.

python make_fuzz_corpus.py
"""
import os
import sys

import make_zero_errors
import zero_errors_slices
import zero_pickles

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fuzz", "corpus")


def write(target, name, content):
    os.makedirs(os.path.join(out, target), exist_ok=True)
    with open(os.path.join(out, target, name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


write("json", "tokens", r'{"a":{"b":[1,-2.5e+3,true,false,null]},"c":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}')
write("json", "python", '{"x": NaN, "y": [Infinity, -Infinity], "a": {}}')
write("json", "nested", "[" * 40 + "{}" + "]" * 40)
write("json", "multibyte", '"\u00e9\u20ac\U0001F600"')
write("json", "indented", '{\n  "a": {\n    "b": 1\n  },\n  "dtype": "float32"\n}\n')
for name in ("every-dtype", "names", "shapes", "pad-3", "nothing"):
    with open(os.path.join(here, "safetensors", name + ".safetensors"), "rb") as f:
        write("safetensors", name, f.read())
for name in ("noted-hole", "noted-trailing", "overlap", "size-wrong", "name-twice"):
    with open(os.path.join(here, "..", "golden-errors", "safetensors", name + ".safetensors"), "rb") as f:
        write("safetensors", name, f.read())
for name in ("whole", "version-2", "split/model-00001-of-00003"):
    with open(os.path.join(here, "gguf", name + ".gguf"), "rb") as f:
        write("gguf", os.path.basename(name), f.read())
for name in ("noted-gap", "noted-order", "overlap", "array-past-end", "axes-overflow", "alignment-0", "rows-cut-blocks"):
    with open(os.path.join(here, "..", "golden-errors", "gguf", name + ".gguf"), "rb") as f:
        write("gguf", name, f.read())
with open(os.path.join(here, "gguf", "every-type.gguf"), "rb") as f:  # without the long text
    write("gguf", "every-type", f.read().replace(b"0123456789" * 7000, b"").replace((70000).to_bytes(8, "little"), bytes(8)))
for name in ("noted-nothing", "entries-missing", "values-huge", "name-twice", "dataset-cut"):
    with open(os.path.join(here, "..", "golden-errors", "imatrix", name + ".dat"), "rb") as f:
        write("imatrix", name, f.read())
for name in ("noted-nothing", "paths-of-one-name", "shard-strided", "boxes-leave-hole", "mesh-without-rank", "path-cut",
             "tensor-in-no-file", "placement-unknown"):
    with open(os.path.join(here, "..", "golden-errors", "dcpv2", name, "metadata.pkl"), "rb") as f:
        write("dcpv2", name, f.read())
for name in ("nested", "types", "qdq", "matmulnbits"):
    with open(os.path.join(here, "onnx", name + ".onnx"), "rb") as f:
        write("onnx", name, f.read())
for name in ("texts", "typed-pieces", "depth-bomb", "length-petabyte", "raw-and-typed", "group", "names"):
    with open(os.path.join(here, "..", "golden-errors", "onnx", name + ".onnx"), "rb") as f:
        write("onnx", name, f.read())
write("hf_index", "good", '{"metadata":{"total_size":2},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}')
write("hf_index", "missing", '{"weight_map":{"x":"a.safetensors","y":"c.safetensors"}}')
write("hf_index", "other", '{"weight_map":{"y":"a.safetensors"},"metadata":null,"more":[{}]}')
write("hf_index", "escape", '{"weight_map":{"x":"../../etc/hostname","y":"./b.safetensors"}}')

# fuzz_open: which name, and is it only a header; length; bytes.
NAMES = ["model.safetensors.index.json", "model.safetensors", "model-00001-of-00002.safetensors",
         "model-00002-of-00002.safetensors", "config.json", "a.safetensors", "sub/b.safetensors", "tokenizer.json",
         "generation_config.json", "pytorch_model.bin", "adapter_config.json", "checkpoint-5/model.safetensors",
         "model-00001-of-00003.safetensors", "optimizer.pt", "README.md", "pytorch_model_fsdp.bin"]


def folder(files):
    return b"".join(bytes([NAMES.index(name) + (128 if name.endswith(".safetensors") and isinstance(text, str) else 0)])
                    + len(text).to_bytes(2, "little") + (text.encode() if isinstance(text, str) else text)
                    for name, text in files.items())


def header(tensors, metadata=""):
    rows, at = [metadata] if metadata else [], 0
    for name, (dtype, shape, n) in tensors.items():
        rows.append('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (name, dtype, shape, at, at + n))
        at += n
    return "{%s}" % ",".join(rows)


one = header({"a": ("F32", [2], 8), "b": ("BF16", [2, 3], 12), "s": ("I64", [], 8)}, '"__metadata__":{"format":"pt"}')
half = {"model.embed_tokens.weight": ("BF16", [4, 2], 16), "model.norm.weight": ("BF16", [2], 4)}
rest = {"lm_head.weight": ("BF16", [4, 2], 16), "model.layers.0.self_attn.q_proj.weight": ("F8_E4M3", [2, 2], 4)}
llama = '{"architectures":["LlamaForCausalLM"],"model_type":"llama","tie_word_embeddings":%s,"torch_dtype":"bfloat16"}'
shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
index = '{"metadata":{"total_size":40},"weight_map":{%s}}' % ",".join(
    '"%s":"%s"' % (name, shard) for tensors, shard in zip((half, rest), shards) for name in tensors)
write("open", "one", folder({"model.safetensors": one}))
write("open", "sharded", folder({"model.safetensors.index.json": index, shards[0]: header(half), shards[1]: header(rest),
                                 "config.json": llama % "false", "tokenizer.json": "{}", "README.md": "text"}))
write("open", "no-index", folder({shards[0]: header(half), shards[1]: header(rest), "config.json": llama % "true"}))
write("open", "tied", folder({"model.safetensors": header(half), "config.json": llama % "true"}))
write("open", "wrapped", folder({"a.safetensors": header({"module._orig_mod." + n: t for n, t in half.items()})}))
write("open", "gpt2", folder({"model.safetensors": header({"wte.weight": ("F16", [4, 2], 16), "h.0.attn.bias": ("BOOL", [4], 4)}),
                              "config.json": '{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2"}'}))
write("open", "quantized", folder({"model.safetensors": header({"w": ("U8", [4], 4), "w.scale": ("F32", [1], 4)}),
                                   "config.json": '{"quantization_config":{"quant_method":"awq"}}'}))
write("open", "metadata-empty", folder({"model.safetensors": '{"__metadata__":{}'}))
trained = {"model.safetensors": ("llama-sgd", "model.safetensors"), "config.json": ("llama-sgd", "config.json"),
           "optimizer.pt": ("llama-sgd", "optimizer.bin")}
gathered = {"pytorch_model_fsdp.bin": ("fsdp1-full", "pytorch_model_fsdp.bin"), "optimizer.pt": ("fsdp1-full", "optimizer.bin")}
for name, files in ("optimizer-numbered", trained), ("optimizer-named", gathered):
    stored = {}
    for ours, (case, theirs) in files.items():
        with open(os.path.join(here, "trainer", case, theirs), "rb") as f:
            stored[ours] = f.read()
    write("open", name, folder(stored))
write("open", "subfolder", folder({"checkpoint-5/model.safetensors": one, "sub/b.safetensors": one}))

# fuzz_adapter: options; which name, and is it only a header; length; bytes.
PARTS = ["base/model.safetensors", "base/config.json", "a/adapter_model.safetensors", "a/adapter_config.json",
         "b/adapter_model.safetensors", "b/adapter_config.json", "a/tokenizer.json", "b/tokenizer.json"]
NAMES, OPEN_NAMES = PARTS, NAMES


def adapter(name, options, config, tensors, other=None, base=None, base_config=llama % "false"):
    pair = {"model.layers.0.self_attn.q_proj.weight": ("BF16", [4, 2], 16), "model.embed_tokens.weight": ("F16", [4, 2], 16)}
    files = {PARTS[0]: header(base or pair), PARTS[1]: base_config, PARTS[2]: header(tensors), PARTS[3]: config}
    files.update({PARTS[4]: header(other or tensors), PARTS[5]: config, PARTS[6]: "{}", PARTS[7]: "{}"})
    write("adapter", name, bytes([options]) + folder(files))


peft, at = '{"peft_type":"LORA","r":1,"lora_alpha":2%s}', "base_model.model.model.layers.0.self_attn.q_proj."
lora = {at + "lora_A.weight": ("F32", [1, 2], 8), at + "lora_B.weight": ("F32", [4, 1], 16)}
below = "base_model.model.model.embed_tokens."
adapter("linear", 0, peft % "", lora)
adapter("targets", 24, peft % ',"target_modules":["q_proj"],"rank_pattern":{"q.*":1},"alpha_pattern":{"x|q_proj":3}', lora)
adapter("dora", 0, peft % ',"use_dora":true', dict(lora, **{at + "lora_magnitude_vector": ("F16", [4], 8)}))
adapter("embedding", 1, peft % "", {below + "lora_embedding_A": ("F32", [1, 4], 16), below + "lora_embedding_B": ("F32", [2, 1], 8)},
        base_config=llama % "true")
adapter("rows", 0, peft % ',"trainable_token_indices":[3,1]', {below + "token_adapter.trainable_tokens_delta": ("F32", [2, 2], 16)})
adapter("saved", 0, peft % ',"modules_to_save":["score"]', {"base_model.model.score.weight": ("F32", [2, 2], 16), below + "weight": ("F16", [6, 2], 24)})
adapter("experts", 0, peft % ',"target_parameters":["mlp.experts.down_proj"]',
        {"base_model.model.m.mlp.experts.lora_A.weight": ("F32", [2, 2], 16), "base_model.model.m.mlp.experts.lora_B.weight": ("F32", [2, 2], 16)},
        base={"m.mlp.experts.down_proj": ("BF16", [2, 2, 2], 16)}, base_config='{"model_type":"x"}')
adapter("two", 0, peft % "", lora, other={below + "weight": ("F16", [4, 2], 16)})
NAMES = OPEN_NAMES

zero = "ckpt1:" + "00" * 32
write("manifest", "two", """{"ckpt_manifest": 1, "digest": "%s", "names": "stored", "include": "model", "cast": "f32", "tensors": [
 {"name": "a", "dtype": "bf16", "shape": [2, 3], "digest": "%s"},
 {"name": "b\\u00e9", "dtype": "f4_e2m1", "shape": [], "digest": "%s"}
]}""" % (zero, zero, zero))
write("manifest", "empty", '{"ckpt_manifest": 1, "digest": "%s", "names": "x", "include": "all", "cast": null, "tensors": []}' % zero)
write("manifest", "include", '{"ckpt_manifest": 1, "digest": "%s", "names": "x", "include": "o\\\\d", "cast": null, "tensors": []}' % zero)
write("receipt", "one", """{"ckpt_receipt":1,"version":"0.1.0","verb":"convert",
 "options":{"names":null,"like":null,"include":null,"allow_overflow":false,"dtype":[{"pattern":"a*","dtype":"bf16"}],"match":[],"exclude":["b"],"rename":["s.a.c."]},
 "inputs":[{"path":"@in.safetensors","format":"safetensors","names":"stored","include":"model","digest":"%s"}],
 "outputs":[{"path":"@out.safetensors","format":"safetensors","shard_size":0,"digest":"%s","n_tensors":1,"n_bytes":96,"tensors":[
  {"name":"a","source":"a","from":"f32","to":"bf16","n_bytes":4,"digest":"%s"}]}]}""" % (zero, zero, zero))
write("receipt", "folder", """{"ckpt_receipt":1,"version":"0.1.0","verb":"split",
 "options":{"names":null,"like":null,"include":null,"allow_overflow":false,"dtype":[],"match":[],"exclude":[],"rename":[]},
 "inputs":[{"path":"@in.safetensors","format":"safetensors","names":"stored","include":"model","digest":"%s"}],
 "outputs":[{"path":"@out.safetensors","format":"hf","shard_size":8,"digest":"%s","n_tensors":1,"n_bytes":96,"tensors":[]}]}""" % (zero, zero))
write("pattern", "glob", "model.*.[!a-z]?\\*\nmodel.x.0a*\nmodel.x.0a\n")
write("pattern", "expression", "re:^(a+)+$\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\naa\n")
write("pattern", "renaming", "s/layers\\.([0-9]+)/h.\\1&\\\\/g\nmodel.layers.10.layers.2\n\u00e9\n")

# fuzz_zip: archives by zipfile, and by PyTorch where it is there.
import io
import zipfile


def archive(entries, comment=b"", method=zipfile.ZIP_STORED, zip64=False, streamed=False):
    class Pipe(io.RawIOBase):  # cannot be sought: sizes go behind the payloads
        def __init__(self):
            self.parts = []

        def writable(self):
            return True

        def write(self, part):
            self.parts.append(bytes(part))
            return len(part)

    out = Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.comment = comment
        for name, content in entries:
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.compress_type = method
            with z.open(info, "w", force_zip64=zip64) as f:
                f.write(content)
    return b"".join(out.parts) if streamed else out.getvalue()


records = [("archive/data.pkl", b"\x80\x02}q\x00."), ("archive/byteorder", b"little"),
           ("archive/data/0", bytes(range(64))), ("archive/version", b"3\n")]
write("zip", "stored", archive(records))
write("zip", "deflated", archive(records, method=zipfile.ZIP_DEFLATED))
write("zip", "zip64", archive(records, zip64=True))
write("zip", "streamed", archive(records, streamed=True))
write("zip", "comment", archive(records, comment=b"PK\x05\x06 is no end"))
write("zip", "nothing", archive([]))
write("zip", "names", archive([("\u00e9/\u20ac", b"x"), ("folder/", b""), ("no-root", b"")]))
write("zip", "twice", archive(records[:1]) + archive(records[1:]))
try:
    import torch
except ImportError:
    torch = None  # what is there stays
if hasattr(torch, "save"):  # the folder torch here is a package, too, where there is no other
    for name, value in (("torch-one", torch.arange(6.0)), ("torch-empty", torch.empty(0, 3)),
                        ("torch-two", {"a": torch.ones(3), "b": torch.ones(5)})):
        file = io.BytesIO()
        torch.save(value, file)
        write("zip", name, file.getvalue())

# fuzz_pickle: the small pickles of pickles.tsv that bring in an opcode which no earlier one has.
import pickletools  # noqa: E402

seen = set()
with open(os.path.join(here, "pickles.tsv"), encoding="utf-8", errors="surrogatepass") as f:
    for line in f:
        name, data = line.split("\t")[:2]
        data = bytes.fromhex(data)
        try:
            opcodes = {opcode.name for opcode, _, _ in pickletools.genops(data)}
        except ValueError:
            opcodes = {name}
        if len(data) < 600 and (not opcodes <= seen or name.startswith(("malicious", "state-dict"))):
            seen |= opcodes
            write("pickle", name, data)

# fuzz_scan: files as they are, of every kind that is looked into.
for name in ("torch.pt", "deflated.pt", "nested.zip", "gap.pt", "size_zero.pt", "memo.pkl", "legacy.pt", "objects.npy",
             "payload.joblib", "payload.pkl.gz", "inst.pkl", "hex_integer.pkl", "newobj_ex.pkl", "method_keys.pkl",
             "method_detach.pkl", "method_get.pkl"):
    with open(os.path.join(here, "scan", "bad", name), "rb") as f:
        content = f.read()
    write("scan", name, content)
    if name.startswith("method_"):
        write("pickle", name, content)
with open(os.path.join(here, "scan", "bad", "very_old.pt"), "rb") as f:
    write("scan", "very_old.pt", f.read()[:3072])
for name in ("zstd/__0_0.distcp", "safetensors/.metadata"):
    with open(os.path.join(here, "dcp", name), "rb") as f:
        write("scan", name.replace("/", "-"), f.read())

# fuzz_convert: a byte of options, then files as they are, whole.
CONVERTED = ["in.pt", "in.safetensors", ".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp", "__3_0.distcp",
             "__0.metadata", "__1.metadata", "__2.metadata", "model.safetensors", "config.json", "pytorch_model.bin"]


def converted(name, options, paths):
    """Files by the names that they have there; a folder's are all of it."""
    content = bytes([options])
    for entry, path in paths:
        with open(os.path.join(here, path), "rb") as f:
            data = f.read()
        content += bytes([CONVERTED.index(entry)]) + len(data).to_bytes(2, "little") + data
    write("convert", name, content)


def all_of(path):
    return [(entry, os.path.join(path, entry)) for entry in sorted(os.listdir(os.path.join(here, path)))]


TO_SAFETENSORS, TO_TORCH, TO_DCP, TO_HF, STORED, ZSTD, TWO_RANKS, ALL = 0, 1, 2, 3, 4, 8, 16, 64
for name, options in (("views", TO_SAFETENSORS), ("training", TO_TORCH | ALL), ("sparse", TO_TORCH), ("legacy", TO_DCP),
                      ("protocol2", TO_HF | STORED), ("deflated", TO_DCP | ZSTD | TWO_RANKS), ("refused", TO_TORCH | ALL)):
    converted(name, options, [("in.pt", "torch/%s.pt" % name)])
converted("every-dtype", TO_TORCH, [("in.safetensors", "safetensors/every-dtype.safetensors")])
converted("names", TO_DCP | TWO_RANKS, [("in.safetensors", "safetensors/names.safetensors")])
converted("dcp", TO_TORCH | ALL, all_of("../golden-errors/dcp/noted-nothing"))
converted("dcp-window", TO_TORCH | ALL, all_of("../golden-errors/dcp/object-window"))
converted("dcp-safetensors", TO_HF, all_of("dcp/safetensors"))
converted("dcp-no-collectives", TO_DCP | ALL, all_of("dcp/no-collectives"))
converted("bin", TO_DCP | ZSTD | ALL, [("pytorch_model.bin", "torch/training.pt")])

# fuzz_zero: a byte of options, then the pickles of the model and of two ranks' optimizers.
zero_pickles.Tensor.pad = 4


def write_zero(name, options, *files):
    content = bytes([options])
    for value in files:
        data, storages = zero_pickles.pickled(value)
        assert len(storages) <= 8 and all(len(storage.values) == 4 for storage in storages)
        content += len(data).to_bytes(2, "little") + data
    write("zero", name, content)


for name in ("noted-nothing", "noted-nothing-3", "noted-without-mappings", "shapes-huge", "mapping-overlaps", "held-in-part",
             "sum-off", "state-missing", "shapes-repeated", "noted-scaler", "noted-scaler-of-a-call",
             "noted-model-of-a-later-step", "stage-huge", "counts-too-few", "noted-muon", "kind-lacks-a-state"):
    stage, change = make_zero_errors.CASES[name]
    case = make_zero_errors.Case(stage)
    change(case)
    write_zero(name, stage == 3, case.model(),
               *(case.files["zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank] for rank in range(2)))
# Two experts beside, or two layers of a pipeline.
for name in ("noted-experts", "experts-repeated", "expert-of-another", "expert-empty", "experts-of-no-number", "counts-differ",
             "noted-pipeline", "layer-of-other-shape"):
    stage, change = make_zero_errors.CASES[name]
    case = make_zero_errors.Case(stage)
    change(case)
    parts = sorted(name for name in case.files if name.startswith("layer_"))
    if "expert" not in parts[0]:
        case.model()["mp_world_size"] = 1
    write_zero(name, 4 if "expert" in parts[0] else 5, case.model(),
               *(case.files["zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank] for rank in range(2)),
               *(case.files[name] for name in parts[:2]))
# Without ZeRO, two experts, whose ranks have an optimizer each.
for name in ("noted-experts-whole", "noted-steps-of-groups", "steps-of-experts-differ"):
    stage, change = make_zero_errors.CASES[name]
    case = make_zero_errors.Case(stage)
    change(case)
    write_zero(name, 6, case.model(), *(case.files[file % rank] for file in (
        "expp_rank_%d_mp_rank_00_optim_states.pt", "layer_0_expert_%d_mp_rank_00_model_states.pt") for rank in range(2)))
# Two tensor-parallel ranks have b of 2 x 2 each.
INFO = {name: info for name, info in zero_errors_slices.INFO.items() if name.startswith(("noted-", "map-", "widths-", "pattern"))}
for name, info in INFO.items():
    for stage in (1, 3) if name.startswith("noted-") else (1,):
        write_zero("slices-%s-%d" % (name, stage), 2 + (stage == 3), *zero_errors_slices.small(stage, info))

# fuzz_tokenizer: a tokenizer.json of each kind, small, and what is wrong with some.
import json  # noqa: E402


def tokenizer(vocab, merges, added=(), **trees):
    model = {"type": "BPE", "unk_token": None, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(vocab)},
             "merges": merges, **trees.pop("model", {})}
    rows = [{"id": i, "content": t, "special": t[0] == "<", "single_word": False, "lstrip": t[-1] == "l", "rstrip": t[-1] == "r",
             "normalized": t[0] != "<"} for i, t in added]
    return json.dumps({"version": "1.0", "added_tokens": rows, "normalizer": None, "pre_tokenizer": None,
                       "post_processor": None, "decoder": None, **trees, "model": model}, separators=(",", ":"))


byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
regex = {"type": "Split", "pattern": {"Regex": "(?i:'s|'t)|[^\\r\\n\\p{L}]?\\p{L}+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated",
         "invert": False}
letters = list("Helo,wrd!itsĠĊ12")
write("tokenizer", "byte-level", tokenizer(letters + ["He", "ll", "Ġw"], ["H e", "l l", "Ġ w"], [(40, "<s>")],
                                           pre_tokenizer=byte_level, decoder=byte_level))
write("tokenizer", "split", tokenizer(
    letters + ["ll"], [["l", "l"]], [(0, "H"), (41, "tool"), (42, "toolr")], normalizer={"type": "NFC"},
    pre_tokenizer={"type": "Sequence", "pretokenizers": [regex, {**byte_level, "use_regex": False}]}, decoder=byte_level,
    post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "H", "type_id": 0}},
                                                             {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                    "special_tokens": {"H": {"id": "H", "ids": [0], "tokens": ["H"]}}}, model={"ignore_merges": True}))
mark = "\u2581"
write("tokenizer", "sentencepiece", tokenizer(
    ["<unk>", "<s>", "<0xC3>", "<0xA9>", mark, *"Helo", mark + "H", mark + "He", "ll"],
    [f"{mark} H", f"{mark}H e", "l l"], [(0, "<unk>"), (1, "<s>")], model={"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True},
    normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark},
                                                    {"type": "Replace", "pattern": {"String": " "}, "content": mark}]},
    decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": mark}, "content": " "},
                                              {"type": "ByteFallback"}, {"type": "Fuse"},
                                              {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
write("tokenizer", "metaspace", tokenizer(
    [mark, "a", "b", mark + "a"], [[mark, "a"]], model={"byte_fallback": True},
    pre_tokenizer={"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True},
    decoder={"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}))
write("tokenizer", "behaviors", tokenizer(
    letters, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithNext", "invert": False},
        {"type": "Split", "pattern": {"Regex": "[aeiou]"}, "behavior": "MergedWithPrevious", "invert": True},
        {"type": "Digits", "individual_digits": True}, {"type": "Split", "pattern": {"Regex": "x*"}, "behavior": "Contiguous",
                                                       "invert": False}, {**byte_level, "use_regex": False}]}))
write("tokenizer", "twice", tokenizer(letters, [], [(3, "H")], pre_tokenizer=byte_level))
write("tokenizer", "merge-of-none", tokenizer(letters, ["H z"], pre_tokenizer=byte_level))
write("tokenizer", "steps", tokenizer(letters, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
    {**regex, "pattern": {"Regex": "(a+)+$"}}, {**byte_level, "use_regex": False}]}))
