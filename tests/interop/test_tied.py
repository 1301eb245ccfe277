"""A merge computes what the model computes that PEFT wraps, whichever of its tied weights an adapter changes."""
import json
import os
import subprocess
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("peft", "transformers")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from command import ckpt  # noqa: E402


hf.logging.disable_progress_bar()
SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64)
SIDES = dict(vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
             decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
             max_target_positions=64, max_source_positions=8, num_mel_bins=8, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None)
GPT = dict(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4)
MARKS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)


def logits(model):
    ids = torch.arange(12)[None] + 3
    inputs = dict(input_ids=ids)
    if model.config.model_type == "whisper":
        inputs = dict(input_features=torch.linspace(-1, 1, 8 * 16).reshape(1, 8, 16))
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    with torch.no_grad():
        return model.eval()(**inputs).logits


def adapt(at, base, into=None, prepare=None, **config):
    """Saves a base and an adapter of it in a folder, and returns the model that PEFT wraps."""
    torch.manual_seed(1)
    for parameter in base.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    base.save_pretrained(at + "/base")
    model = (into or type(base)).from_pretrained(at + "/base")
    if into is not None:
        model.config.pad_token_id = 0
    if prepare is not None:
        prepare(model)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, **config))
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    wrapped.save_pretrained(at + "/adapter")
    return wrapped


def alike(at, base, *options, into=None, **config):
    """Merges, and compares what is computed; the merged folder has all that its class has, no more, and is verified."""
    wrapped = adapt(at, base, into, **config)
    ckpt("merge", at + "/base", "--adapter", at + "/adapter", "-o", at + "/merged", *options)
    merged, loading = (into or type(base)).from_pretrained(at + "/merged", output_loading_info=True)
    assert not any(loading.values()), (at, loading)
    merged.config.pad_token_id = wrapped.config.pad_token_id
    wanted, found = logits(wrapped), logits(merged)
    gap = (wanted - found).abs().max() / wanted.abs().max()
    assert gap < 1e-5, (at, gap)
    ckpt("verify", at + "/merged")


def refused(at, base, *options, **config):
    adapt(at, base, **config)
    done = subprocess.run([command.CKPT, "merge", at + "/base", "--adapter", at + "/adapter", "-o", at + "/merged", *options],
                          capture_output=True, text=True)
    assert done.returncode == 1, (at, done.returncode, done.stderr)
    return done.stderr


def bert(**more):
    return hf.BertForMaskedLM(hf.BertConfig(**SIZES, **more))


def bart():
    return hf.BartForConditionalGeneration(hf.BartConfig(**SIDES))


def t5():
    return hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                                                     decoder_start_token_id=0))


def llama(tied):
    return hf.LlamaForCausalLM(hf.LlamaConfig(num_key_value_heads=2, tie_word_embeddings=tied, **SIZES))


def two_sides():
    gpt2 = hf.GPT2LMHeadModel(hf.GPT2Config(add_cross_attention=True, is_decoder=True, **GPT))
    return hf.EncoderDecoderModel(encoder=hf.BertModel(hf.BertConfig(**SIZES)), decoder=gpt2)


def test_tied_heads_of_families(folder):
    distilbert = hf.DistilBertConfig(vocab_size=96, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64)
    xlnet = hf.XLNetConfig(vocab_size=96, d_model=32, n_layer=2, n_head=4, d_inner=48)
    ctrl = hf.CTRLConfig(vocab_size=96, n_positions=64, n_embd=32, dff=48, n_layer=2, n_head=4)
    whisper = hf.WhisperConfig(suppress_tokens=None, begin_suppress_tokens=None, **SIDES)
    kinds = [("bert", bert(), ["word_embeddings", "query"]), ("bert-head", bert(), ["decoder", "query"]),
             ("roberta", hf.RobertaForMaskedLM(hf.RobertaConfig(**SIZES)), ["decoder", "query"]),
             ("modernbert", hf.ModernBertForMaskedLM(hf.ModernBertConfig(**MARKS, **SIZES)), ["tok_embeddings", "Wqkv"]),
             ("modernbert-head", hf.ModernBertForMaskedLM(hf.ModernBertConfig(**MARKS, **SIZES)), ["decoder", "Wqkv"]),
             ("distilbert", hf.DistilBertForMaskedLM(distilbert), ["word_embeddings", "q_lin"]),
             ("electra", hf.ElectraForMaskedLM(hf.ElectraConfig(embedding_size=32, **SIZES)), ["word_embeddings"]),
             ("albert", hf.AlbertForMaskedLM(hf.AlbertConfig(embedding_size=16, **SIZES)), ["word_embeddings"]),
             ("biogpt", hf.BioGptForCausalLM(hf.BioGptConfig(**SIZES)), ["embed_tokens", "q_proj"]),
             ("deberta-v2", hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**SIZES)), ["word_embeddings", "query_proj"]),
             ("bert-lm", hf.BertLMHeadModel(hf.BertConfig(is_decoder=True, **SIZES)), ["word_embeddings"]),
             ("whisper", hf.WhisperForConditionalGeneration(whisper), ["proj_out", "q_proj"]),
             ("openai-gpt", hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**GPT)), ["tokens_embed", "c_attn"]),
             ("xlnet", hf.XLNetLMHeadModel(xlnet), ["word_embedding", "layer_1"]),
             ("ctrl", hf.CTRLLMHeadModel(ctrl), ["transformer.w", "Wq"]), ("bart-head", bart(), ["lm_head", "q_proj"]),
             ("bart", bart(), ["shared", "q_proj"]), ("bart-decoder", bart(), ["decoder.embed_tokens", "q_proj"]),
             ("t5", t5(), ["shared", "q"]), ("t5-head", t5(), ["lm_head", "q"])]
    for name, base, targets in kinds:
        at = os.path.join(folder, name)
        alike(at, base, "--tied", "untie", target_modules=targets)
        message = refused(at + "-tied", type(base)(base.config), target_modules=targets)
        assert "is tied to" in message, message
    alike(folder + "/saved", bert(), "--tied", "untie", target_modules=["query"], modules_to_save=["word_embeddings"])
    alike(folder + "/saved-t5", t5(), "--tied", "untie", target_modules=["q"], modules_to_save=["shared"])
    alike(folder + "/biases", bert(), target_modules=["query"], bias="all")
    for targets in (["wte", "query"], ["word_embeddings"]):
        message = refused(folder + "/sides-%d" % len(targets), two_sides(), "--tied", "untie", target_modules=targets)
        assert "the base stores no output head" in message, message


def test_tied_names_are_those_of_transformers(folder):
    """A merged model that unties one has every name that its class ties."""
    for base, target in ((bert(), "decoder"), (bart(), "lm_head"), (t5(), "lm_head")):
        at, tied = os.path.join(folder, target + base.config.model_type), set(base.all_tied_weights_keys)
        adapt(at, base, target_modules=[target])
        ckpt("merge", at + "/base", "--adapter", at + "/adapter", "-o", at + "/merged", "--tied", "untie")
        assert len(tied) >= 2 and set(command.names(at + "/merged")) == set(command.names(at + "/base")) | tied


def test_rows_and_a_head(folder):
    alike(folder + "/llama", llama(True), "--tied", "untie", target_modules=["lm_head"], trainable_token_indices=[1, 5])
    alike(folder + "/bart", bart(), "--tied", "untie", target_modules=["lm_head"], trainable_token_indices={"shared": [1, 5]})


def test_the_head_of_neox(folder):
    def neox(tied):
        return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(tie_word_embeddings=tied, **SIZES))
    alike(folder + "/target", neox(False), target_modules=["lm_head", "query_key_value"])
    alike(folder + "/saved", neox(False), target_modules=["query_key_value"], modules_to_save=["lm_head"])
    alike(folder + "/tied", neox(True), "--tied", "untie", target_modules=["lm_head"])


def test_another_vocabulary(folder):
    rows = list(range(96, 101))
    cases = [("saved", False, dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
             ("rows", False, dict(target_modules=["q_proj"], trainable_token_indices=rows)),
             ("rows-tied", True, dict(target_modules=["q_proj"], trainable_token_indices=rows)),
             ("tied", True, dict(target_modules=["q_proj", "embed_tokens"])),
             ("tied-saved", True, dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
             ("tied-head", True, dict(target_modules=["q_proj", "lm_head"])),
             ("linear", True, dict(target_modules=["q_proj"]))]
    for name, tied, config in cases:
        at = os.path.join(folder, name)
        alike(at, llama(tied), *(("--tied", "untie") if name.startswith("tied") else ()),
              prepare=lambda m: m.resize_token_embeddings(101), **config)
        with open(at + "/merged/config.json") as file:
            assert json.load(file)["vocab_size"] == 101

    def resize(model):
        model.resize_token_embeddings(101)
    alike(folder + "/t5", t5(), prepare=resize, target_modules=["q"])
    alike(folder + "/t5-rows", t5(), prepare=resize, target_modules=["q"], trainable_token_indices={"shared": [96, 97]})
    alike(folder + "/bert", bert(), prepare=resize, target_modules=["query"])
    assert "final_logits_bias" in refused(folder + "/bart", bart(), prepare=resize, target_modules=["q_proj"])


def test_another_task(folder):
    distilbert = hf.DistilBertConfig(vocab_size=96, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64)
    for name, base, into, target in (
            ("llama", llama(False), hf.LlamaForSequenceClassification, "q_proj"),
            ("llama-tied", llama(True), hf.LlamaForSequenceClassification, "embed_tokens"),
            ("neox", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SIZES)), hf.GPTNeoXForSequenceClassification, "query_key_value"),
            ("roberta", hf.RobertaForMaskedLM(hf.RobertaConfig(**SIZES)), hf.RobertaForSequenceClassification, "query"),
            ("distilbert", hf.DistilBertForMaskedLM(distilbert), hf.DistilBertForSequenceClassification, "q_lin")):
        alike(os.path.join(folder, name), base, into=into, target_modules=[target], task_type="SEQ_CLS")


def test_linear_and_conv1d_in_one_model(folder):
    alike(folder + "/both", two_sides(), target_modules=["query", "value", "c_attn"])
    alike(folder + "/conv1d", two_sides(), target_modules=["q_attn"], fan_in_fan_out=True)
    alike(folder + "/square", two_sides(), target_modules=["q_attn", "query"])


def test_bare_bases(folder):
    for name, body, whole, target in (("deberta-v2", hf.DebertaV2Model(hf.DebertaV2Config(**SIZES)), hf.DebertaV2ForMaskedLM,
                                       "query_proj"),
                                      ("mpnet", hf.MPNetModel(hf.MPNetConfig(**SIZES)), hf.MPNetForMaskedLM, "q")):
        at = os.path.join(folder, name)
        wrapped = adapt(at, body, whole, target_modules=[target])
        ckpt("merge", at + "/base", "--adapter", at + "/adapter", "-o", at + "/merged")
        merged, ids = type(body).from_pretrained(at + "/merged").eval(), torch.arange(12)[None] + 3
        with torch.no_grad():
            wanted = getattr(wrapped.base_model.model, whole.base_model_prefix).eval()(ids)[0]
            assert (merged(ids)[0] - wanted).abs().max() < 1e-5, name


if __name__ == "__main__":
    command.main(globals())
