"""What PEFT saves as an adapter, we write under the name that PEFT looks for: it loads the same weights. What we merge
is what PEFT's model computes, and the adapter of two models makes the second of the first, in PEFT too."""
import os
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("peft", "transformers")
import peft  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from command import ckpt  # noqa: E402


def build():
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                              intermediate_size=64, max_position_embeddings=32))


def test_an_adapter_there_and_back(folder):
    adapted = peft.get_peft_model(build(), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder + "/adapter")
    ckpt("convert", folder + "/adapter", "-o", folder + "/copy")
    assert sorted(os.listdir(folder + "/copy")) == sorted(os.listdir(folder + "/adapter"))
    wanted, loaded = adapted.state_dict(), peft.PeftModel.from_pretrained(build(), folder + "/copy").state_dict()
    assert wanted.keys() == loaded.keys() and all(torch.equal(wanted[n], loaded[n]) for n in wanted)


def save(state, folder):
    """A model without a config.json, as safetensors."""
    os.makedirs(folder)
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder + "/model.safetensors")


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def test_an_attention_of_torch_computes_what_is_merged(folder):
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(5, 3, 8)
    save(model.state_dict(), folder + "/base")
    config = peft.LoraConfig(r=2, lora_alpha=8, target_modules=["attention"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    adapted.save_pretrained(folder + "/adapter")
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged.safetensors")
    merged = Attention()
    merged.load_state_dict(safetensors.torch.load_file(folder + "/merged.safetensors"))
    with torch.no_grad():
        wanted = adapted(x)
        assert (merged(x) - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_a_weight_that_peft_does_not_load_is_refused(folder):
    build().save_pretrained(folder + "/base")
    adapted = peft.get_peft_model(build(), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder + "/adapter")
    path = folder + "/adapter/adapter_model.safetensors"
    name = "base_model.model.model.layers.0.self_attn.q_proj.weight"
    safetensors.torch.save_file({**safetensors.torch.load_file(path), name: torch.zeros(32, 32)}, path)
    wanted, loaded = adapted.state_dict(), peft.PeftModel.from_pretrained(build(), folder + "/adapter").state_dict()
    assert all(torch.equal(wanted[n], loaded[n]) for n in wanted)
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged", status=1)


# ---- adapters of two models ------------------------------------------------------------------------------------------

SIZES = dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=32)
CODERS = dict(vocab_size=48, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
              decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48)
SMALL = dict(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=32)
MODELS = {  # class, config, and the tensors that differ; None: all
    "neox": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**SIZES), None),
    "neox head": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**SIZES), "lm_head"),
    "t5": (hf.T5ForConditionalGeneration,
           hf.T5Config(vocab_size=48, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4), None),
    "t5 embedding": (hf.T5ForConditionalGeneration,
                     hf.T5Config(vocab_size=48, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4), "shared"),
    "bart": (hf.BartForConditionalGeneration, hf.BartConfig(**CODERS, max_position_embeddings=32), None),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig(**SIZES, pad_token_id=1), None),
    "roberta embedding": (hf.RobertaForMaskedLM, hf.RobertaConfig(**SIZES, pad_token_id=1), "word_embeddings"),
    "distilbert": (hf.DistilBertForMaskedLM,
                   hf.DistilBertConfig(vocab_size=48, dim=32, n_layers=2, n_heads=4, hidden_dim=48,
                                       max_position_embeddings=32), None),
    "electra": (hf.ElectraForMaskedLM, hf.ElectraConfig(**SIZES, embedding_size=32), None),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**SIZES), None),
    "bert head": (hf.BertForMaskedLM, hf.BertConfig(**SIZES), "cls.predictions"),
    "biases": (hf.GPT2LMHeadModel, hf.GPT2Config(**SMALL), "bias"),
    "gpt-oss": (hf.GptOssForCausalLM,
                hf.GptOssConfig(**{**SIZES, "intermediate_size": 16}, num_key_value_heads=2, head_dim=8,
                                num_local_experts=4, num_experts_per_tok=2), None),
    "mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4), None),
    "mixtral expert": (hf.MixtralForCausalLM,
                       hf.MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4), "layers.0.mlp.experts"),
    "deepseek": (hf.DeepseekV3ForCausalLM,
                 hf.DeepseekV3Config(**SIZES, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2,
                                     moe_intermediate_size=16, n_group=1, topk_group=1, q_lora_rank=8, kv_lora_rank=8,
                                     qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, first_k_dense_replace=1), None),
    "openai": (hf.OpenAIGPTLMHeadModel, hf.OpenAIGPTConfig(**SMALL), None),
    "whisper": (hf.WhisperForConditionalGeneration,
                hf.WhisperConfig(**CODERS, num_mel_bins=8, max_source_positions=16, max_target_positions=16,
                                 pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1), None),
    "resnet": (hf.ResNetForImageClassification,
               hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"), None),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=True), None),
    "bare": (hf.LlamaModel, hf.LlamaConfig(**SIZES, num_key_value_heads=2), None),
}


def outputs(model):
    torch.manual_seed(7)
    ids, kind = torch.randint(3, 48, (2, 9)), model.config.model_type
    inputs = dict(input_ids=ids)
    if kind == "resnet":
        inputs = dict(pixel_values=torch.randn(2, 3, 16, 16))
    elif kind == "whisper":
        inputs = dict(input_features=torch.randn(2, 8, 32), decoder_input_ids=ids)
    elif kind in ("t5", "bart"):
        inputs["decoder_input_ids"] = ids.flip(1)
    with torch.no_grad():
        return model.eval()(**inputs)[0]


def check_extraction(folder, kind, make, config, changed):
    torch.manual_seed(0)
    make(config).save_pretrained(folder + "/base")
    tuned = make.from_pretrained(folder + "/base")
    for name, parameter in tuned.named_parameters():
        if changed is None or changed in name:
            parameter.data += 0.01 * torch.randn_like(parameter)
    tuned.save_pretrained(folder + "/tuned")
    base = make.from_pretrained(folder + "/base")
    wanted, before = outputs(make.from_pretrained(folder + "/tuned")), outputs(base)
    rank = 2 if kind == "resnet" else 32
    ckpt("extract-lora", "--base", folder + "/base", "--tuned", folder + "/tuned", "--rank", rank, "-o", folder + "/lora")
    ckpt("verify", folder + "/lora")
    ckpt("merge", folder + "/base", "--adapter", folder + "/lora", "-o", folder + "/merged")
    for of, model in (("merge", make.from_pretrained(folder + "/merged")),
                      ("peft", peft.PeftModel.from_pretrained(base, folder + "/lora"))):
        gap = ((outputs(model) - wanted).abs().max() / (wanted - before).abs().max()).item()
        assert gap < 1e-3, "%s: %s is off by %g of what differs" % (kind, of, gap)


def test_an_adapter_of_two_models_is_the_second_again(folder):
    for number, (kind, (make, config, changed)) in enumerate(MODELS.items()):
        os.mkdir("%s/%d" % (folder, number))
        check_extraction("%s/%d" % (folder, number), kind, make, config, changed)


if __name__ == "__main__":
    command.main(globals())
