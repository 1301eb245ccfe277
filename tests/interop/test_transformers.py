"""What transformers saves, we read under its own names; what we write, transformers loads with the same bits."""
import json
import os
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("transformers")
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from command import ckpt, digest, names  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

hf.utils.logging.disable_progress_bar()

SMALL = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=32)
MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=False)),
    "llama-tied": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SMALL, num_key_value_heads=2)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True)),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**SMALL, num_key_value_heads=1, head_dim=8)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4)),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                                            num_heads=4)),
}


def build(name, dtype=torch.float32):
    torch.manual_seed(len(name))
    return MODELS[name]().to(dtype).eval()


def logits(model):
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


def load(model, path):
    """The model in path as transformers loads it; every weight has to come from there."""
    loaded, info = type(model).from_pretrained(path, output_loading_info=True, dtype="auto")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return loaded.eval()


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def stored(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(folder, name)))
    return tensors


def for_each_model(test):
    def all_of_them(folder):
        problems = []
        for name in MODELS:
            os.mkdir(os.path.join(folder, name))
            try:
                test(name, os.path.join(folder, name))
            except AssertionError as error:
                problems.append("%s: %s" % (name, error))
        assert not problems, "\n".join(problems)

    return all_of_them


@for_each_model
def test_names_are_the_state_dicts_own(name, folder):
    model = build(name)
    model.save_pretrained(folder + "/m")
    found, own = set(names(folder + "/m")), model.state_dict()
    if name == "mixtral":  # in memory transformers 5 has all experts in one tensor; its files keep the names of 4
        assert found == stored(folder + "/m").keys()
        return
    tied = {key for key in own if key not in found}
    assert found <= own.keys(), found - own.keys()
    kept = {own[key].data_ptr() for key in found}
    assert all(own[key].data_ptr() in kept for key in tied), "not listed: %s" % tied


@for_each_model
def test_shards_and_a_single_file_have_one_digest(name, folder):
    model = build(name)
    model.save_pretrained(folder + "/one")
    model.save_pretrained(folder + "/shards", max_shard_size="20KB")
    assert len([f for f in os.listdir(folder + "/shards") if f.endswith(".safetensors")]) > 1
    assert digest(folder + "/one") == digest(folder + "/shards")
    ckpt("diff", folder + "/one", folder + "/shards")
    ckpt("verify", folder + "/shards")


@for_each_model
def test_there_and_back(name, folder):
    """To one file, back to shards with the model's config, as transformers sees it: nothing changed."""
    model = build(name, torch.bfloat16)
    model.save_pretrained(folder + "/m", max_shard_size="20KB")
    ckpt("convert", folder + "/m", "-o", folder + "/one.safetensors")
    ckpt("convert", folder + "/one.safetensors", "-o", folder + "/back", "--like", folder + "/m", "--shard-size", "30KB")
    ckpt("convert", folder + "/m", "-o", folder + "/folder")
    wanted = load(model, folder + "/m")  # not the model itself: .to(bfloat16) casts buffers that loading leaves alone
    for output in ("/back", "/folder"):
        ckpt("diff", folder + "/m", folder + output)
        assert digest(folder + "/m") == digest(folder + output)
        loaded = load(model, folder + output)
        assert same_state(wanted, loaded) and same_state(model, loaded), output
        assert torch.equal(logits(wanted), logits(loaded)), output
    a, b = stored(folder + "/m"), stored(folder + "/folder")
    assert a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@for_each_model
def test_casts_of_whole_models(name, folder):
    model = build(name)
    model.save_pretrained(folder + "/m")
    for written, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        out = folder + "/" + written
        ckpt("convert", folder + "/m", "-o", out, "--dtype", written, "--shard-size", "50KB")
        cast = build(name).to(dtype)
        cast.save_pretrained(folder + "/theirs-" + written)
        loaded, wanted = load(model, out), load(model, folder + "/theirs-" + written)
        with open(out + "/config.json") as f:
            config = json.load(f)
        assert str(dtype) == "torch." + (config.get("dtype") or config.get("torch_dtype")), config
        assert same_state(wanted, loaded), written
        assert torch.equal(logits(wanted), logits(loaded)), written
        assert digest(out) == digest(folder + "/theirs-" + written)


def test_every_part_of_a_model_says_the_dtype(folder):
    """Configurations inside the config, against what transformers saves of a model that it has loaded in that dtype."""
    layers = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    bert = dict(layers, vocab_size=96, max_position_embeddings=32)
    models = {
        "llava": hf.LlavaForConditionalGeneration(hf.LlavaConfig(
            text_config=hf.LlamaConfig(**SMALL), image_token_index=5,
            vision_config=hf.CLIPVisionConfig(**layers, image_size=16, patch_size=8))),
        "two": hf.EncoderDecoderModel(hf.EncoderDecoderConfig.from_encoder_decoder_configs(
            hf.BertConfig(**bert), hf.BertConfig(**bert))),
    }
    for name, model in models.items():
        base = os.path.join(folder, name)
        model.save_pretrained(base)
        for written, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)):
            theirs, ours = base + "-theirs-" + written, base + "-" + written
            type(model).from_pretrained(base, dtype=dtype).save_pretrained(theirs)
            if written != "bf16":  # base now says its dtype in every part, and another one
                ckpt("convert", base, "-o", ours, "--dtype", written)
                with open(theirs + "/config.json") as a, open(ours + "/config.json") as b:
                    assert json.load(a) == json.load(b), (name, written)
            base = theirs


@for_each_model
def test_a_single_file_has_the_bytes_of_save_pretrained(name, folder):
    model = build(name)
    model.save_pretrained(folder + "/m")
    ckpt("convert", folder + "/m", "-o", folder + "/ours")
    for file in ("model.safetensors", "config.json"):
        with open(folder + "/m/" + file, "rb") as a, open(folder + "/ours/" + file, "rb") as b:
            assert a.read() == b.read(), file


def test_the_committed_models_load(folder):
    for name, kind in (("llama-tiny", hf.AutoModelForCausalLM), ("gpt2-tiny", hf.AutoModelForCausalLM)):
        path = os.path.join(command.TESTS, "data", name)
        out = os.path.join(folder, name)
        ckpt("split", path, "-o", out, "--shard-size", "50KB")
        a, b = kind.from_pretrained(path, dtype="auto").eval(), kind.from_pretrained(out, dtype="auto").eval()
        assert same_state(a, b) and torch.equal(logits(a), logits(b)), name
        tokens = [hf.AutoTokenizer.from_pretrained(p)("a b c")["input_ids"] for p in (path, out)]
        assert tokens[0] == tokens[1]


def test_a_valid_model_of_any_head_is_no_problem(folder):
    """Classes with heads, prefixes and towers of their own: what a row does not know is not proven, never wrong."""
    layers = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    text, vision = hf.LlamaConfig(**SMALL), dict(**layers, image_size=32, patch_size=8)
    families = [
        (text, "Llama", ["Model", "ForCausalLM", "ForSequenceClassification", "ForQuestionAnswering",
                         "ForTokenClassification"]),
        (hf.MistralConfig(**SMALL, num_key_value_heads=2), "Mistral",
         ["Model", "ForCausalLM", "ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification"]),
        (hf.GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2),
         "GPT2", ["Model", "LMHeadModel", "DoubleHeadsModel", "ForSequenceClassification", "ForQuestionAnswering",
                  "ForTokenClassification"]),
        (hf.BertConfig(**SMALL), "Bert", ["Model", "ForPreTraining"]),
        (hf.ViTConfig(**vision), "ViT", ["ForImageClassification"]),
        (hf.CLIPConfig(text_config=dict(**SMALL, bos_token_id=1, eos_token_id=2), vision_config=vision), "CLIP",
         ["Model"]),
        (hf.LlavaConfig(text_config=text, vision_config=hf.CLIPVisionConfig(**vision), image_token_index=5), "Llava",
         ["ForConditionalGeneration"]),
        (hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), "ResNet", ["Model"]),
    ]
    for config, family, heads in families:
        for head in heads:
            name = family + head
            path = os.path.join(folder, name)
            getattr(hf, name)(config).save_pretrained(path)
            result = json.loads(ckpt("verify", path, "--json"))
            is_proven = any(what.startswith("config: names and shapes") for what in result["proven"])
            is_known = family in ("Llama", "Mistral", "GPT2")
            assert is_proven == is_known and not result["warnings"], (name, result)


command.main(globals())
