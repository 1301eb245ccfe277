"""`ckpt verify` says "proven: config" where transformers would load every tensor, and nowhere else.

Random configs of the known families, with their classes, and edits of config and tensors, all from a fixed seed. Each
folder is loaded by the class that its config names; "proven" has to be what `output_loading_info` says. --record FILE
writes some of the cases as golden ones, which tests/tools/config_search.py replays without transformers.
"""
import json
import os
import random
import sys

import command  # before transformers, whose environment it sets

command.need("transformers")
import torch  # noqa: E402
import transformers as hf  # noqa: E402

sys.path.insert(0, os.path.join(command.TESTS, "tools"))
import config_search as search  # noqa: E402

hf.utils.logging.set_verbosity(50)
hf.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

SEED = int(os.environ.get("CKPT_SEED", 20240924))
N_BASES = 800 if os.environ.get("CKPT_TEST_FULL") else 39 if os.environ.get("CKPT_RECORD") else 80
N_EDITS = 7 if os.environ.get("CKPT_RECORD") else 12
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
HEADS = ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
CLASSES = {
    "llama": ["Llama" + head for head in HEADS],
    "mistral": ["Mistral" + head for head in HEADS],
    "qwen2": ["Qwen2" + head for head in HEADS],
    "qwen3": ["Qwen3" + head for head in HEADS],
    "mixtral": ["Mixtral" + head for head in HEADS],
    "gemma2": ["Gemma2" + head for head in HEADS[:4]],
    "gpt_neox": ["GPTNeoX" + head for head in HEADS],
    "gpt2": ["GPT2Model", "GPT2LMHeadModel", "GPT2DoubleHeadsModel", "GPT2ForSequenceClassification",
             "GPT2ForTokenClassification", "GPT2ForQuestionAnswering"],
}
PREFIXES = {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}  # others: "model."
EMBEDDINGS = {"gpt2": "transformer.wte.weight", "gpt_neox": "gpt_neox.embed_in.weight"}
LM_HEADS = {"gpt_neox": "embed_out.weight"}
# Of strict configs: a null there is an error of transformers', as is a number that is left out and has another meaning.
STRICT = {"qwen3": ["head_dim"], "gemma2": ["head_dim"], "qwen2": ["head_dim"]}


def random_config(rng, family):
    """Keys as a config.json has them; some are left out, as releases and people do."""
    layers, vocab = rng.choice([1, 2, 3]), rng.randint(8, 20)
    n_heads = rng.choice([1, 2, 3, 4])
    width = n_heads * rng.choice([2, 4, 6])
    config = {"model_type": family, "vocab_size": vocab}
    if family == "gpt2":
        config.update(n_embd=width, n_head=n_heads, n_layer=layers, n_positions=rng.choice([6, 8]))
        optional = {"n_inner": rng.choice([None, 10, 4 * width]), "add_cross_attention": rng.random() < 0.4,
                    "summary_use_proj": rng.random() < 0.8, "summary_proj_to_labels": rng.random() < 0.6}
    else:
        config.update(hidden_size=width, num_attention_heads=n_heads, num_hidden_layers=layers,
                      intermediate_size=rng.choice([6, 10]), num_key_value_heads=rng.choice([1, n_heads]),
                      max_position_embeddings=16)
        optional = {"head_dim": rng.choice([None, 2, 4][family in STRICT:]), "attention_bias": rng.random() < 0.4,
                    "mlp_bias": rng.random() < 0.4}
        if family == "mixtral":
            config["num_local_experts"] = rng.choice([1, 2, 3])
        if family == "llama" and rng.random() < 0.2:
            optional["num_key_value_heads"] = config.pop("num_key_value_heads")
    optional["tie_word_embeddings"] = rng.random() < 0.5
    optional["pad_token_id"] = rng.choice([None, 0, vocab - 1])
    if rng.random() < 0.5:
        optional["id2label"] = {str(i): "L%d" % i for i in range(rng.choice([1, 2, 3, 5]))}
    elif rng.random() < 0.3:
        optional["num_labels"] = rng.choice([1, 3])
    if rng.random() < 0.2:
        optional["token_classification_bias"] = rng.random() < 0.5
    config.update({key: value for key, value in optional.items() if rng.random() < 0.8})
    if family == "gpt_neox":
        config.pop("num_key_value_heads", None)
    if family != "gpt2":
        config.update(rng.choice([{"rope_theta": 10000.0}, {"rope_theta": 10000.0, "rope_scaling": None}, {
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}]))
    config.update(rng.choice([{"torch_dtype": "float32", "transformers_version": "4.44.0"},
                              {"dtype": "float32", "transformers_version": "5.0.0"}, {}]))
    return config


def state_of(name, config):
    """Names, dtypes and shapes of the class's own state dict, as transformers saves it: a tied head only once."""
    cls = getattr(hf, name)
    with torch.device("meta"):
        model = cls(cls.config_class.from_dict(dict(config)))
    tied = getattr(model, "all_tied_weights_keys", {})
    return on_disk(config, {n: [DTYPES[t.dtype], list(t.shape)] for n, t in model.state_dict().items() if n not in tied})


def on_disk(config, tensors):
    """As save_pretrained writes them: experts one by one, the head of GPT-NeoX under its old name."""
    found = {}
    for name, (dtype, shape) in tensors.items():
        if name == "lm_head.weight":
            name = LM_HEADS.get(config["model_type"], name)
        if ".mlp.experts." not in name:
            found[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = [dtype, shape]
            continue
        layer = name.split(".mlp.")[0]
        for e in range(shape[0]):
            parts = {"w1": 2, "w3": 2} if name.endswith("gate_up_proj") else {"w2": 1}
            for part, n in parts.items():
                found["%s.block_sparse_moe.experts.%d.%s.weight" % (layer, e, part)] = [dtype, [shape[1] // n, shape[2]]]
    return found


def strays(rng, family, config, tensors):
    """Names that are no part of the model, or were once."""
    layer = rng.choice([n for n in tensors if ".0." in n])
    width = config.get("n_embd", config.get("hidden_size"))
    of_family = {"gpt2": [("transformer.h.0.attn.bias", [1, 1, 8, 8]), ("h.0.attn.bias", [1, 1, 8, 8]),
                          ("transformer.h.7.attn.c_attn.bias", [3 * width]),
                          ("transformer.h.0.crossattention.q_attn.bias", [width])],
                 "gpt_neox": [("gpt_neox.layers.0.attention.bias", [1, 1, 8, 8]),
                              ("gpt_neox.layers.0.attention.masked_bias", []), ("embed_out.weight", [8, width]),
                              ("gpt_neox.layers.0.attention.rotary_emb.inv_freq", [2])],
                 "mixtral": [("model.layers.0.block_sparse_moe.experts.7.w1.weight", [6, width]),
                             ("model.layers.0.block_sparse_moe.gate.bias", [2])]}
    found = of_family.get(family, [("model.layers.0.self_attn.rotary_emb.inv_freq", [2]),
                                   ("model.rotary_emb.inv_freq", [2]), ("model.layers.0.self_attn.q_proj.bias", [width]),
                                   ("model.layers.0.self_attn.q_norm.weight", [width])])
    found += [("lm_head.weight", [config["vocab_size"], width]), ("lm_head.bias", [config["vocab_size"]]),
              ("score.weight", [2, width]), ("score.bias", [2]), ("qa_outputs.bias", [2]), ("classifier.bias", [2]),
              ("extra", [3]), (PREFIXES.get(family, "model.") + "extra.weight", [3]),
              (layer.replace(".0.", ".%d." % rng.choice([3, 9])), tensors[layer][1]),
              (layer + "_x", [2])]
    return rng.choice(found)


def random_edits(rng, family, name, config, tensors):
    """One edit, sometimes two; none first of all."""
    edits = []
    for _ in range(1 if rng.random() < 0.8 else 2):
        what = rng.choice(["drop", "add", "shape", "rank", "dtype", "float", "class", "prefix", "wrap", "flag", "number",
                           "unset", "labels", "padding", "untie"])
        tensor = rng.choice(sorted(tensors))
        dtype, shape = tensors[tensor]
        if what == "drop":
            edits.append(["drop", tensor])
        elif what == "add":
            edits.append(["add", *(lambda n, s: (n, "F32", s))(*strays(rng, family, config, tensors))])
        elif what == "shape":
            edits.append(["add", tensor, dtype, [extent + (i == 0) for i, extent in enumerate(shape)]])
        elif what == "rank":
            edits.append(["add", tensor, dtype, rng.choice([shape + [1], [1] + shape, shape[::-1]])])
        elif what in ("dtype", "float"):
            of = ["I32", "I64", "U8", "BOOL"] if what == "dtype" else ["F64", "F16", "BF16"]
            edits.append(["add", tensor, rng.choice(of), shape])
        elif what == "class":
            edits.append(["set", "architectures", [rng.choice(CLASSES[family])]])
        elif what == "prefix":
            prefix = rng.choice([PREFIXES.get(family, "model."), "transformer.", "model."])
            edits.append(["prefix", *rng.choice([(prefix, ""), ("", prefix)])])
        elif what == "wrap":
            edits.append(["prefix", "", rng.choice(["module.", "_orig_mod.", "base_model."])])
        elif what == "flag":
            key = rng.choice(["attention_bias", "mlp_bias", "add_cross_attention", "tie_word_embeddings",
                              "summary_use_proj", "token_classification_bias"])
            edits.append(["set", key, not config.get(key, False)])
        elif what == "number":
            key = rng.choice([k for k in config if isinstance(config[k], int) and k != "pad_token_id"
                              and not isinstance(config[k], bool)])
            edits.append(["set", key, max(1, config[key] + rng.choice([-1, 1, 2]))])
        elif what == "unset":
            edits.append(["unset", rng.choice(["head_dim", "n_inner", "tie_word_embeddings", "attention_bias",
                                               "id2label", "num_labels", "add_cross_attention"])])
        elif what == "labels":
            edits.append(["set", "id2label", {str(i): "x%d" % i for i in range(rng.choice([1, 2, 3, 4]))}])
        elif what == "padding":
            edits.append(["set", "pad_token_id", rng.choice([-1, config["vocab_size"], 0, -config["vocab_size"] - 1])])
        elif what == "untie":  # the head beside the embedding, or alone
            embedding = EMBEDDINGS.get(family, "model.embed_tokens.weight")
            if embedding in tensors:
                head = LM_HEADS.get(family, "lm_head.weight")
                edits += [["add", head, *tensors[embedding]], ["set", "tie_word_embeddings", True]]
                if rng.random() < 0.5:
                    edits.append(["drop", embedding])
    return edits


def loads(folder, name):
    """Whether transformers finds all that the class has in the folder, and nothing else; and what it says."""
    try:
        _, info = getattr(hf, name).from_pretrained(folder, output_loading_info=True)
    except Exception as error:  # whatever it is, nothing was loaded
        return False, "%s: %s" % (type(error).__name__, str(error)[:300])
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
    return not any(info.get(kind) for kind in kinds), {kind: sorted(map(str, info.get(kind) or [])) for kind in kinds}


def is_cautious(config, said):
    """Whether it is one of the cases in which verify says why it does not know, though transformers would load it."""
    reasons = ("no class of this model_type", "which is not known here", "config.json has no ",
               "id2label and num_labels", "whose wrappers convert takes off", "another prefix than the names are read with",
               "is a name that not every release of transformers has")
    if any("two tensors have this name" in problem["message"] for problem in said["problems"]):
        return True  # with the prefix and without: transformers takes one of them
    return any(reason in text for text in said["unproven"] for reason in reasons)


def casts(tensors):
    """Numbers that transformers casts to floats without a word."""
    return any(dtype not in ("F32", "F64", "F16", "BF16") for dtype, _ in tensors.values())


def judge(folder, base, edits):
    config, tensors = search.edited(base["config"], base["tensors"], edits)
    search.write(folder, config, tensors)
    is_proven, said = search.verdict(command.CKPT, folder)
    is_loaded, info = loads(folder, config["architectures"][0])
    if casts(tensors):
        return is_proven, False, config, said, info
    return is_proven, is_loaded, config, said, info


def bases(rng):
    for i in range(N_BASES):
        family = sorted(CLASSES)[i % len(CLASSES)]
        name = CLASSES[family][i // len(CLASSES) % len(CLASSES[family])]
        config = dict(random_config(rng, family), architectures=[name])
        yield family, name, {"config": config, "tensors": state_of(name, config)}


def test_proven_is_what_transformers_loads(folder):
    rng = random.Random(SEED)
    record = os.environ.get("CKPT_RECORD")
    n, n_loaded, n_cautious, wrong, lines = 0, 0, 0, [], []
    for family, name, base in bases(rng):
        cases = []
        for k in range(N_EDITS):
            edits = [] if k == 0 else random_edits(rng, family, name, base["config"], base["tensors"])
            is_proven, is_loaded, config, said, info = judge(folder, base, edits)
            n += 1
            n_loaded += is_loaded
            cautious = is_loaded and not is_proven and is_cautious(config, said)
            n_cautious += cautious
            if is_proven != is_loaded and not cautious:
                wrong.append("%s\n  %s\n  %s\n  transformers: %s\n  verify: %s" % (name, base["config"], edits, info, said))
            elif is_proven == is_loaded:
                cases.append([edits, is_loaded])
        lines.append(json.dumps(dict(base, cases=cases), separators=(",", ":")))
    print("%d folders: %d load whole, of which verify leaves %d unproven and says why" % (n, n_loaded, n_cautious))
    assert not wrong, "%d of %d:\n%s" % (len(wrong), n, "\n".join(wrong[:10]))
    assert n_loaded > n // 4 and n_cautious < n_loaded // 10
    if record:
        with open(record, "w") as file:
            file.write("\n".join(lines) + "\n")


def test_other_files_of_the_same_model(folder):
    """pytorch_model.bin, where both names of a tie stand, and shards: also of a class that has no such tie."""
    rng, n_loaded = random.Random(SEED), 0
    for i, (family, name) in enumerate((family, name) for family in CLASSES for name in CLASSES[family]):
        config = dict(random_config(rng, family), architectures=[name])
        model = getattr(hf, name)(getattr(hf, name).config_class.from_dict(dict(config)))
        for kind in ("bin", "extra", "shards", "elsewhere"):
            path = os.path.join(folder, "%d-%s" % (i, kind))
            os.mkdir(path)
            state = dict(model.state_dict())
            if kind == "extra":  # a head that shares the embedding, as .bin of a causal model has it
                state.setdefault("lm_head.weight", model.get_input_embeddings().weight.data)
            if kind in ("bin", "extra"):
                torch.save(state, os.path.join(path, "pytorch_model.bin"))
            elif kind == "shards":
                model.save_pretrained(path, max_shard_size="2KB")
            else:
                model.save_pretrained(path)
                os.rename(os.path.join(path, "model.safetensors"), os.path.join(path, "weights.safetensors"))
            with open(os.path.join(path, "config.json"), "w") as file:
                json.dump(config, file)
            is_proven, said = search.verdict(command.CKPT, path)
            is_loaded, info = loads(path, name)
            n_loaded += is_loaded
            cautious = is_loaded and kind in ("bin", "extra") and is_cautious(config, said)
            assert is_proven == is_loaded or cautious, (name, kind, config, info, said)
    assert n_loaded >= 2 * i, n_loaded


if __name__ == "__main__":
    command.main(globals())
