"""Tied models of many families: whatever format holds them, we write what transformers loads whole, with one digest.

transformers saves a tiny model as safetensors; torch saves its state dict as pytorch_model.bin and as DCP, where both
names of a tie stand. Each becomes a folder by our convert. llama.cpp's converter makes GGUF of it, where it knows the
family and LLAMA_CPP_BIN names its tools.
"""
import os
import shutil
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("transformers")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import transformers as hf  # noqa: E402
from command import ckpt, digest, names  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

hf.utils.logging.disable_progress_bar()

SMALL = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=32)
TIED = dict(SMALL, num_key_value_heads=2, tie_word_embeddings=True)
GEMMA = dict(TIED, head_dim=8)
MODELS = {
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**TIED)),
    "qwen2-untied": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**dict(TIED, tie_word_embeddings=False))),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**GEMMA)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**GEMMA)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**GEMMA)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**TIED)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32)),
    "opt": lambda: hf.OPTForCausalLM(hf.OPTConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, ffn_dim=64,
                                                  num_attention_heads=4, max_position_embeddings=32,
                                                  word_embed_proj_dim=32)),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                                            num_heads=4)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)),
    "gpt-neox-tied": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL, tie_word_embeddings=True)),
    "mamba": lambda: hf.MambaForCausalLM(hf.MambaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2,
                                                        state_size=4, intermediate_size=64)),
    "distilbert": lambda: hf.DistilBertForMaskedLM(hf.DistilBertConfig(vocab_size=96, dim=32, n_layers=2, n_heads=4,
                                                                       hidden_dim=64, max_position_embeddings=32)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)),
}
UNTIED = ("qwen2-untied", "gpt-neox")
HEADS = ("lm_head.", "embed_out.", "vocab_projector.weight", "cls.predictions.decoder.")
FORMATS = ("safetensors", "bin", "dcp", "dcp-model")


def build(name):
    torch.manual_seed(len(name))
    return MODELS[name]().eval()


def logits(model):
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


def in_files(model, saved):
    """Its state dict, under the names that transformers gives its files: those of GPT-NeoX are older ones."""
    state, stored = model.state_dict(), load_file(os.path.join(saved, "model.safetensors"))
    return state if stored.keys() <= state.keys() else stored


def save(model, base, kind):
    """The model in a folder of its own, as a format's own program writes it; its path."""
    folder = os.path.join(base, kind)
    if kind == "safetensors":
        model.save_pretrained(folder)
        return folder
    os.mkdir(folder)
    state = in_files(model, os.path.join(base, "safetensors"))
    if kind == "bin":
        torch.save(state, os.path.join(folder, "pytorch_model.bin"))
    else:
        warnings.filterwarnings("ignore")
        dcp.save({"model": state} if kind == "dcp-model" else state, checkpoint_id=folder)
    shutil.copy(os.path.join(base, "safetensors", "config.json"), folder)
    return folder


def clean(info):
    return not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def for_each_model(test):
    def all_of_them(folder):
        problems = []
        for name in MODELS:
            base = os.path.join(folder, name)
            os.mkdir(base)
            try:
                test(name, base)
            except AssertionError as error:
                problems.append("%s: %s" % (name, error))
        assert not problems, "\n".join(problems)

    return all_of_them


@for_each_model
def test_one_model_whatever_holds_it(name, base):
    model = build(name)
    wanted, sums = logits(model), {}
    for kind in FORMATS:
        saved = save(model, base, kind)
        out = os.path.join(base, kind + "-out")
        ckpt("convert", saved, "-o", out, "--to", "hf")
        loaded, info = type(model).from_pretrained(out, output_loading_info=True)
        assert clean(info), "%s: %s" % (kind, info)
        assert torch.equal(logits(loaded.eval()), wanted), "%s: other logits" % kind
        sums[kind], sums[kind + "-out"] = digest(saved), digest(out)
        ckpt("verify", out)
        ckpt("diff", saved, out)
        embedding = [n for n, p in model.named_parameters() if p is model.get_input_embeddings().weight]
        found = names(out)
        assert any(n in found for n in embedding), "%s: %s without %s" % (kind, found, embedding)
        assert any(n.startswith(HEADS) for n in found) == (name in UNTIED), "%s: %s" % (kind, found)
    assert len(set(sums.values())) == 1, sums


@for_each_model
def test_like_takes_both_names_of_a_tie(name, base):
    """A state dict alone, which has both names and no config: --like says which stays."""
    model = build(name)
    model.save_pretrained(base + "/m")
    state = in_files(model, base + "/m")
    torch.save(state, base + "/state.pt")
    torch.save({n: t.clone() for n, t in state.items()}, base + "/copies.pt")
    for source in ("state.pt", "copies.pt"):
        out = os.path.join(base, source + "-out")
        ckpt("convert", os.path.join(base, source), "-o", out, "--like", base + "/m")
        loaded, info = type(model).from_pretrained(out, output_loading_info=True)
        assert clean(info), "%s: %s" % (source, info)
        assert torch.equal(logits(loaded.eval()), logits(model)), source
        assert digest(out) == digest(base + "/m"), source


@for_each_model
def test_like_takes_the_modules_own_state(name, base):
    """As above, of DCP and under the names of the module in memory, which are not those of files everywhere."""
    model = build(name)
    model.save_pretrained(base + "/m")
    dcp.save(model.state_dict(), checkpoint_id=base + "/dcp")
    ckpt("consolidate", base + "/dcp", "-o", base + "/out", "--like", base + "/m")
    loaded, info = type(model).from_pretrained(base + "/out", output_loading_info=True)
    assert clean(info), info
    assert torch.equal(logits(loaded.eval()), logits(model))
    if name != "gpt-neox":  # untied: its head keeps the name that the module has
        assert digest(base + "/out") == digest(base + "/m")


# The tokens are no concern of weights; a hash of one is looked up where a tokenizer is known.
CONVERTER = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.path.insert(1, {folder!r} + "/gguf-py")
from conversion import base, gemma, qwen
def without(self):
    self.gguf_writer.add_tokenizer_model("none")
for module in (base, gemma, qwen):
    for found in list(vars(module).values()):
        if isinstance(found, type) and "set_vocab" in vars(found):
            found.set_vocab = without
sys.argv = ["convert_hf_to_gguf.py"] + {arguments!r}
runpy.run_path({folder!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def test_llama_cpp_finds_the_embedding(base):
    tool = command.llama("llama-quantize")
    if tool is None:
        return
    folder = os.path.dirname(os.path.dirname(os.path.dirname(tool)))
    if not os.path.exists(os.path.join(folder, "convert_hf_to_gguf.py")):
        command.skip("no convert_hf_to_gguf.py beside LLAMA_CPP_BIN")
        return
    for name in ("qwen2", "gemma", "gemma2"):
        model = build(name)
        for kind in ("safetensors", "bin"):
            os.makedirs(os.path.join(base, name), exist_ok=True)
            out, made = os.path.join(base, name, kind + "-out"), os.path.join(base, "%s-%s.gguf" % (name, kind))
            ckpt("convert", save(model, os.path.join(base, name), kind), "-o", out, "--to", "hf")
            script = CONVERTER.format(folder=folder, arguments=[out, "--outfile", made, "--outtype", "f32"])
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
            assert done.returncode == 0, "%s %s: %s" % (name, kind, done.stderr[-2000:])
            found = names(made, "--names", "stored")  # GGUF's own
            assert "token_embd.weight" in found and "output.weight" not in found, (name, kind, found)


if __name__ == "__main__":
    command.main(globals())
