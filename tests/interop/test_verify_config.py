"""`ckpt verify` says "proven: config" where transformers would load every tensor, and nowhere else.

Random configs of the known families, with their classes, and edits of config and tensors, all from a fixed seed. Each
folder is loaded by the class that its config names; "proven" has to be what `output_loading_info` says. --record FILE
writes some of the cases as golden ones, which tests/tools/config_search.py replays without transformers.
"""
import dataclasses
import importlib.util
import json
import os
import random
import shutil
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


VALUES = {  # of keys that decide no shape: what their classes take, and what they do not
    "hidden_act": ["silu", "gelu", "nope", 3, None], "activation_function": ["gelu_new", "relu", "nope", None, ["relu"]],
    "hidden_activation": ["gelu_pytorch_tanh", "gelu_wrong", 1], "rms_norm_eps": [1e-5, 1, "1e-5", None, True],
    "layer_norm_eps": [1e-5, "small"], "layer_norm_epsilon": [1e-5, 0, "small"],
    "initializer_range": [0.02, 1, "0.02", None], "use_cache": [True, False, "true", 1, None],
    "attention_dropout": [0, 0.1, "0.1", None], "resid_pdrop": [0, 0.1, "0.1"], "attn_pdrop": [0.1, None],
    "hidden_dropout": [0.1, []], "dtype": ["float16", "bfloat16", "float3", "int32", 16, None],
    "torch_dtype": ["float16", "float64", "float3", "complex", None], "max_position_embeddings": [32, "32", None, 2.0],
    "n_positions": [8, "8"], "id2label": [{"0": "a", "1": "b"}, {"a": "x", "b": "y"}, [], {"0": 1, "1": 2}, "x", None],
    "label2id": [{"a": 0}, {"a": "0"}, {"a": 0.5}, [], None], "num_labels": ["x", 2, 2.5],
    "problem_type": ["regression", "single_label_classification", "ranking", 1, None],
    "layer_types": [["full_attention"], ["sliding_attention", "full_attention"], ["full_attention"] * 3,
                    ["wide_attention"], ["full_attention", 3], "full_attention", None],
    "sliding_window": [4, None, "4", 4.5], "use_sliding_window": [True, "no"], "bos_token_id": [0, None, 1.5],
    "eos_token_id": [1, [0, 1], None, 1.5], "is_encoder_decoder": [False, None], "output_hidden_states": [True, "x"],
    "output_attentions": [True, False], "return_dict": [True, "x"], "chunk_size_feed_forward": [0, None],
    "transformers_version": ["4.0.0", 4], "pretraining_tp": [1, None, "1"], "query_pre_attn_scalar": [2, 2.5, "2"],
    "attn_logit_softcapping": [50.0, None, 50], "final_logit_softcapping": [30.0, "30"],
    "router_aux_loss_coef": [0.01, 1], "num_experts_per_tok": [1, "1"], "output_router_logits": [True, 1],
    "summary_type": ["last", "first", "middle", 1], "summary_activation": ["tanh", "nope", None],
    "scale_attn_weights": [True, 1], "reorder_and_upcast_attn": [True, "x"], "use_parallel_residual": [False, 0],
    "rotary_pct": [0.5, "0.5"], "rotary_emb_base": [100, "x"], "rope_theta": [100, 1e6, "x", None],
    "partial_rotary_factor": [0.5, "x"], "tokenizer_class": ["X", 3], "temperature": [0.5, "hot"],
    "a_key_of_somebody": [1, {"x": []}]
}
ROPES = [{"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2}, {"type": "linear"}, {"type": "odd"},
         {"type": "dynamic", "factor": 2.0}, {"rope_type": "dynamic"}, {"factor": 2.0}, {"rope_type": "yarn"}, {},
         {"rope_type": "yarn", "factor": 2.0}, {"rope_type": "yarn", "factor": "2"}, [], "linear", {"rope_type": 3},
         {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8, "beta_fast": 32, "beta_slow": 1},
         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}]


def rope(rng):
    """Scaling of rotary positions, sometimes with a key less, or one that is no number."""
    made = rng.choice(ROPES) if rng.random() < 0.7 else ROPES[-1]
    if rng.random() < 0.3 and made and isinstance(made, dict):
        made = dict(made)
        key = rng.choice(sorted(made))
        if rng.random() < 0.7:
            del made[key]
        else:
            made[key] = rng.choice(["x", None])
    return made


def value_edit(rng, family, config):
    """A key with another value, of another type at times."""
    if rng.random() < 0.25 and family != "gpt2":
        return ["set", rng.choice(["rope_scaling", "rope_parameters"]), rope(rng)]
    of_class = {f.name for f in dataclasses.fields(getattr(hf, CLASSES[family][0]).config_class)}
    key = rng.choice([k for k in sorted(VALUES) if k in of_class or rng.random() < 0.3])
    return ["set", key, rng.choice(VALUES[key])]


def random_edits(rng, family, name, config, tensors):
    """One edit, sometimes two; none first of all."""
    edits = []
    if rng.random() < 0.4:
        return [value_edit(rng, family, config) for _ in range(1 if rng.random() < 0.8 else 2)]
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


def is_named_twice(config, tensors):
    """Whether a tensor is there with the prefix of the base model and without: transformers takes one of the two."""
    prefix = PREFIXES.get(config["model_type"], "model.")
    return any(prefix + name in tensors for name in tensors)


def is_cautious(config, said):
    """Whether it is one of the cases in which verify says why it does not know, though transformers would load it."""
    reasons = ("no class of this model_type", "which is not known here", "does not know whether", "config.json has no ",
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
            tensors = search.edited(base["config"], base["tensors"], edits)[1]
            cautious = is_loaded and not is_proven and (is_cautious(config, said) or is_named_twice(config, tensors))
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


def edit_json(path, change):
    with open(path) as file:
        value = json.load(file)
    change(value)
    with open(path, "w") as file:
        json.dump(value, file)


def test_what_else_decides_what_is_loaded(folder):
    """The file that config.json names, an index without metadata, an adapter beside the model."""
    config = hf.LlamaConfig(vocab_size=12, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6)
    model = hf.LlamaForCausalLM(config)
    weights = "model.safetensors"
    for kind in ("whole", "named", "gone", "beside", "named-index", "bare-index", "adapter"):
        path = os.path.join(folder, kind)
        model.save_pretrained(path, **({"max_shard_size": "1KB"} if "index" in kind else {}))
        name = {"named": "own.safetensors", "gone": "gone.safetensors", "beside": weights,
                "named-index": "own.safetensors.index.json"}.get(kind)
        if name is not None:
            edit_json(os.path.join(path, "config.json"), lambda config: config.update(transformers_weights=name))
        if kind == "named":
            os.rename(os.path.join(path, weights), os.path.join(path, name))
        if kind == "named-index":
            os.rename(os.path.join(path, weights + ".index.json"), os.path.join(path, name))
        if kind == "bare-index":
            edit_json(os.path.join(path, weights + ".index.json"), lambda index: index.pop("metadata"))
        if kind == "adapter" and importlib.util.find_spec("peft") is None:
            command.skip("peft is not installed")
            continue
        if kind == "adapter":
            import peft
            peft.get_peft_model(hf.LlamaForCausalLM(config), peft.LoraConfig(r=2)).save_pretrained(path)
        is_proven, said = search.verdict(command.CKPT, path)
        is_loaded, info = loads(path, "LlamaForCausalLM")
        if kind == "adapter":  # it is a model with another in it
            is_loaded = False
        assert is_proven == is_loaded, (kind, info, said)
        if is_loaded:
            command.ckpt("convert", path, "-o", path + "-out")
            assert loads(path + "-out", "LlamaForCausalLM")[0] and search.verdict(command.CKPT, path + "-out")[0], kind


def test_side_files_that_are_no_json(folder):
    """A tokenizer that transformers cannot load is a problem."""
    for name in (None, "tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"):
        path = os.path.join(folder, str(name))
        shutil.copytree(os.path.join(command.TESTS, "data", "llama-tiny"), path)
        if name is not None:
            with open(os.path.join(path, name), "wb") as file:
                file.write(bytes(200))
        try:
            hf.AutoTokenizer.from_pretrained(path)
            is_loaded = True
        except Exception:  # whatever it is, there is no tokenizer
            is_loaded = False
        _, said = search.verdict(command.CKPT, path)
        assert (said["status"] == "ok") == is_loaded, (name, said)
        assert is_loaded or not any("tokenizer:" in text for text in said["proven"]), said


if __name__ == "__main__":
    command.main(globals())
