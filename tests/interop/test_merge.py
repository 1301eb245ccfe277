"""Adapters that PEFT saves, merged by us: the merged model computes what the wrapped one does."""
import json
import os
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("peft", "transformers")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from command import ckpt  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()
SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64)
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def llama(tied=False, **more):
    return hf.LlamaForCausalLM(hf.LlamaConfig(num_key_value_heads=2, tie_word_embeddings=tied, **SIZES, **more))


def qwen(tied=True):
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(num_key_value_heads=2, tie_word_embeddings=tied, **SIZES))


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64))


def bert(labels=0):
    config = hf.BertConfig(**SIZES, **({"num_labels": labels} if labels else {}))
    return (hf.BertForSequenceClassification if labels else hf.BertForMaskedLM)(config)


def t5():
    return hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                                     num_heads=4, decoder_start_token_id=0))


def mixtral():
    return hf.MixtralForCausalLM(hf.MixtralConfig(num_key_value_heads=2, num_local_experts=4, **SIZES))


def wrap(make, folder, dtype=torch.float32, **config):
    """A base on disk, and the adapter of a wrapped copy of it, with values in every part of it."""
    torch.manual_seed(1)
    base = make().to(dtype)
    base.save_pretrained(folder + "/base")
    base = type(base).from_pretrained(folder + "/base", dtype=dtype)
    wrapped = peft.get_peft_model(base, peft.LoraConfig(**{"r": 4, "lora_alpha": 8, **config}))
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            with torch.no_grad():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    wrapped.save_pretrained(folder + "/adapter")
    return wrapped.eval()


def logits(model):
    ids = torch.arange(24).reshape(2, 12) * 3 % 90
    with torch.no_grad():
        return (model(input_ids=ids, decoder_input_ids=ids) if model.config.is_encoder_decoder
                else model(input_ids=ids)).logits.float()


def same(make, folder, *options, within=2e-5, **config):
    wrapped = wrap(make, folder, **config)
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged", *options)
    wanted, merged = logits(wrapped), type(wrapped.get_base_model()).from_pretrained(folder + "/merged").eval()
    gap = ((logits(merged) - wanted).abs().max() / wanted.abs().max()).item()
    before = ((logits(type(merged).from_pretrained(folder + "/base").eval()) - wanted).abs().max()).item()
    assert gap < within and before > 10 * within, (gap, before)
    return wrapped, merged


def refused(base, adapter, out):
    assert not os.path.exists(out)
    told = json.loads(ckpt("merge", base, "--adapter", adapter, "-o", out, "--json", status=1))
    assert not os.path.exists(out)
    return told["error"]["message"]


def test_llama(folder):
    same(llama, folder + "/all", target_modules="all-linear")
    same(llama, folder + "/rs", target_modules=LINEARS, use_rslora=True, rank_pattern={"q_proj": 2},
         alpha_pattern={"layers.1.mlp.*": 3})
    same(llama, folder + "/dora", target_modules=LINEARS + ["embed_tokens"], use_dora=True)
    same(llama, folder + "/layers", target_modules=["q_proj"], layers_to_transform=[1], bias="all")
    same(lambda: llama(attention_bias=True), folder + "/bias", target_modules=["q_proj"], lora_bias=True)
    same(llama, folder + "/saved", target_modules=["v_proj"], modules_to_save=["lm_head", "norm"])
    same(llama, folder + "/rows", target_modules=["v_proj"],
         trainable_token_indices={"embed_tokens": [7, 3, 95], "lm_head": [0, 5]})
    same(llama, folder + "/parameters", target_modules=["v_proj"], target_parameters=["q_proj.weight"])
    same(llama, folder + "/regex", target_modules=r"model\.layers\.\d+\..*_proj", exclude_modules=r".*\.1\.mlp\..*")
    same(llama, folder + "/excluded", target_modules=LINEARS, exclude_modules=["k_proj", "layers.0.mlp.up_proj"])
    same(llama, folder + "/pattern", target_modules=["q_proj"], layers_to_transform=[1], layers_pattern=["h", "layers"])
    same(lambda: llama(attention_bias=True), folder + "/lora-only", target_modules=["q_proj"], bias="lora_only")


def judged(base, adapter):
    """How many tensors PEFT changes, None where it refuses the adapter."""
    model = hf.LlamaForCausalLM.from_pretrained(base)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        merged = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload().state_dict()
    except Exception:
        return None
    return sum(not torch.equal(merged[name], tensor) for name, tensor in before.items())


def test_configs_that_contradict_their_file(folder):
    """Where PEFT raises, or leaves tensors of the file unused, we refuse, and `verify` says what it can without a base."""
    wrap(llama, folder, target_modules=LINEARS)
    base, adapter, out = folder + "/base", folder + "/adapter", folder + "/x"
    path = adapter + "/adapter_config.json"
    config = json.load(open(path))
    assert judged(base, adapter) == 14
    cases = [({"target_modules": ["q_proj"]}, 2, "does not target", 1), ({"target_modules": []}, None, "does not target", 1),
             ({"target_modules": ["nope"]}, None, "does not target", 1), ({"exclude_modules": ["q_proj"]}, 12, "does not target", 1),
             ({"layers_to_transform": [0]}, 7, "does not target", 1), ({"layers_to_transform": 0}, 7, "does not target", 1),
             ({"layers_to_transform": [0], "layers_pattern": "layers"}, 7, "does not target", 1),
             ({"modules_to_save": ["lm_head"]}, None, "modules_to_save", 1),
             ({"modules_to_save": ["mlp"]}, None, "does not target", 1),
             ({"trainable_token_indices": [1]}, None, "trainable_token_indices", 1),
             ({"lora_bias": True}, None, "lora_bias", 1), ({"bias": "some"}, None, "bias", 1),
             ({"lora_alpha": 0}, 0, "lora_alpha is 0", 0), ({"r": -1}, None, "r is no positive", 1),
             ({"peft_type": None}, None, "peft_type", 1)]
    for change, wanted, message, status in cases:
        with open(path, "w") as file:
            json.dump({**config, **change}, file)
        assert judged(base, adapter) == wanted, change
        failed = refused(base, adapter, out)
        assert message in failed, (change, failed)
        ckpt("verify", adapter, status=status)
    for change in {"target_modules": ["model.layers.0.mlp.up_proj"] + LINEARS[:5] + ["layers.1.mlp.up_proj", "down_proj"]}, \
            {"target_modules": r".*\.(self_attn|mlp)\..*_proj"}, {"target_modules": "ALL-linear"}, {"exclude_modules": ["proj"]}:
        with open(path, "w") as file:
            json.dump({**config, **change}, file)
        assert judged(base, adapter) == 14, change
        ckpt("hash", base, "--adapter", adapter)
        ckpt("verify", adapter)


def test_tied_embeddings(folder):
    for name, make in (("llama", lambda: llama(tied=True)), ("qwen", qwen), ("gpt2", gpt2)):
        embedding, layer = ("wte", "c_attn") if name == "gpt2" else ("embed_tokens", "q_proj")
        at = folder + "/" + name
        for what, config in (("embed", {"target_modules": [embedding, layer]}),
                             ("head", {"target_modules": ["lm_head"]}),
                             ("both", {"target_modules": ["lm_head", embedding]}),
                             ("saved", {"target_modules": [layer], "modules_to_save": [embedding]})):
            _, merged = same(make, f"{at}-{what}", "--tied", "untie", **config)
            assert not merged.config.tie_word_embeddings
            failed = refused(f"{at}-{what}/base", f"{at}-{what}/adapter", f"{at}-{what}/x")
            assert "tied to" in failed and "--tied untie" in failed, failed
        _, merged = same(make, at + "-rows", target_modules=[layer], trainable_token_indices=[3, 9])
        assert merged.config.tie_word_embeddings
        if name == "gpt2":
            continue
        for what, config in (("ensured", {"target_modules": [embedding], "ensure_weight_tying": True}),
                             ("whole", {"target_modules": [layer], "modules_to_save": [embedding],
                                        "ensure_weight_tying": True})):
            _, merged = same(make, f"{at}-{what}", **config)
            assert merged.config.tie_word_embeddings


def test_other_families(folder):
    same(qwen, folder + "/qwen", target_modules="all-linear")
    same(gpt2, folder + "/gpt2", target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    same(gpt2, folder + "/gpt2-dora", target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, use_dora=True)
    same(bert, folder + "/bert", target_modules=["query", "value", "dense"])
    same(t5, folder + "/t5", target_modules=["q", "v", "wi", "wo"])


def test_experts(folder):
    fused = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    same(mixtral, folder + "/both", target_modules=["q_proj"], target_parameters=fused)
    same(mixtral, folder + "/down", target_modules=["q_proj"], target_parameters=fused[1:],
         rank_pattern={"experts.down_proj": 8})


def gpt_oss():
    return hf.GptOssForCausalLM(hf.GptOssConfig(num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, head_dim=8,
                                                **SIZES))


def fused(make, folder, parameters, **config):
    """A base whose file holds its experts as transformers 5 has them in memory, against PEFT's own merge."""
    wrapped = wrap(make, folder, target_parameters=parameters, **config)
    state = {name: tensor.clone() for name, tensor in make_again(make).state_dict().items()}
    assert any(name.endswith("gate_up_proj") for name in state)
    os.remove(folder + "/base/model.safetensors")
    save_file(state, folder + "/base/model.safetensors", metadata={"format": "pt"})
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged.safetensors")
    wanted = {name: tensor for name, tensor in wrapped.merge_and_unload().state_dict().items()}
    merged = load_file(folder + "/merged.safetensors")
    assert merged.keys() == wanted.keys(), merged.keys() ^ wanted.keys()
    changed = [name for name in wanted if not torch.equal(wanted[name], state[name])]
    assert any("experts" in name for name in changed), changed
    for name, tensor in wanted.items():
        gap = (merged[name] - tensor).abs().max().item()
        assert gap <= 1e-6 * tensor.abs().max().item(), (name, gap)


def test_adapters_of_single_experts(folder):
    """Saved before transformers 5, which holds experts together: PEFT converts them, our files have them apart."""
    torch.manual_seed(1)
    mixtral().save_pretrained(folder + "/base")
    before = load_file(folder + "/base/model.safetensors")
    for n, targets in enumerate((["q_proj", "w1", "w2", "w3"], ["gate", "w2", "q_proj"])):
        factors = {}
        for name, tensor in before.items():
            if name.removesuffix(".weight").split(".")[-1] in targets:
                module = "base_model.model." + name.removesuffix("weight")
                factors[module + "lora_A.weight"] = torch.randn(3, tensor.shape[1]) * 0.1
                factors[module + "lora_B.weight"] = torch.randn(tensor.shape[0], 3) * 0.1
        adapter = f"{folder}/adapter{n}"
        os.makedirs(adapter)
        save_file(factors, adapter + "/adapter_model.safetensors")
        with open(adapter + "/adapter_config.json", "w") as file:
            json.dump({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": targets, "task_type": "CAUSAL_LM"}, file)
        ckpt("merge", folder + "/base", "--adapter", adapter, "-o", adapter + ".safetensors")
        merged = peft.PeftModel.from_pretrained(hf.MixtralForCausalLM.from_pretrained(folder + "/base"), adapter)
        merged.merge_and_unload().save_pretrained(adapter + "-peft")
        found, wanted = load_file(adapter + ".safetensors"), load_file(adapter + "-peft/model.safetensors")
        assert sum(not torch.equal(wanted[name], before[name]) for name in wanted) == len(factors) // 2
        for name, tensor in wanted.items():
            assert (found[name] - tensor).abs().max() <= 1e-6 * tensor.abs().max(), name
        state = {name: tensor.clone() for name, tensor in hf.MixtralForCausalLM.from_pretrained(folder + "/base").state_dict().items()}
        os.makedirs(f"{folder}/fused{n}")
        save_file(state, f"{folder}/fused{n}/model.safetensors", metadata={"format": "pt"})
        hf.MixtralConfig.from_pretrained(folder + "/base").save_pretrained(f"{folder}/fused{n}")
        failed = refused(f"{folder}/fused{n}", adapter, folder + "/x")
        assert "block_sparse_moe.experts.0.w" in failed, failed


def make_again(make):
    torch.manual_seed(1)
    return make()


def test_experts_that_a_file_holds_together(folder):
    both = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    fused(mixtral, folder + "/mixtral", both, target_modules=["q_proj"])
    fused(mixtral, folder + "/down", both[1:], target_modules=["q_proj"], rank_pattern={"experts.down_proj": 3})
    fused(gpt_oss, folder + "/gpt-oss", both, target_modules=["q_proj"])  # (experts, in, out), with biases of their own
    # the same adapter gives the same values in a matrix an expert
    wrap(mixtral, folder + "/apart", target_modules=["q_proj"], target_parameters=both)
    ckpt("merge", folder + "/apart/base", "--adapter", folder + "/mixtral/adapter", "-o", folder + "/apart.safetensors")
    apart, together = load_file(folder + "/apart.safetensors"), load_file(folder + "/mixtral/merged.safetensors")
    for name, tensor in together.items():
        if name.endswith("experts.gate_up_proj"):
            module = name.removesuffix(".experts.gate_up_proj").replace(".mlp", ".block_sparse_moe") + ".experts"
            for expert, whole in enumerate(tensor):
                for part, rows in zip(("w1", "w3"), whole.chunk(2)):
                    assert torch.equal(apart[f"{module}.{expert}.{part}.weight"], rows), (name, expert, part)


def test_a_classifier_over_the_bare_base(folder):
    torch.manual_seed(1)
    hf.BertModel(hf.BertConfig(**SIZES)).save_pretrained(folder + "/base")
    model = hf.BertForSequenceClassification.from_pretrained(folder + "/base", num_labels=3)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"],
                                                         init_lora_weights=False)).eval()
    wrapped.save_pretrained(folder + "/adapter")
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged")
    merged = hf.AutoModelForSequenceClassification.from_pretrained(folder + "/merged").eval()
    assert type(merged).__name__ == "BertForSequenceClassification" and merged.config.num_labels == 3
    assert (logits(merged) - logits(wrapped)).abs().max() < 1e-5


def test_a_larger_vocabulary(folder):
    torch.manual_seed(1)
    base = llama()
    base.save_pretrained(folder + "/base")
    base.resize_token_embeddings(101)
    wrapped = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False,
                                                        modules_to_save=["embed_tokens", "lm_head"])).eval()
    wrapped.save_pretrained(folder + "/adapter")
    ckpt("merge", folder + "/base", "--adapter", folder + "/adapter", "-o", folder + "/merged")
    merged = hf.LlamaForCausalLM.from_pretrained(folder + "/merged").eval()
    assert merged.config.vocab_size == 101 and (logits(merged) - logits(wrapped)).abs().max() < 1e-5


def test_half_precision_rounds_once(folder):
    """In bf16 and f16 at most one ulp in 0.1 % of the elements against float64 rounded once."""
    for dtype in (torch.bfloat16, torch.float16):
        at = f"{folder}/{dtype}".replace("torch.", "")
        wrapped = wrap(llama, at, dtype, target_modules=LINEARS)
        ckpt("merge", at + "/base", "--adapter", at + "/adapter", "-o", at + "/merged")
        before, after = hf.LlamaForCausalLM.from_pretrained(at + "/base", dtype=dtype).state_dict(), \
            hf.LlamaForCausalLM.from_pretrained(at + "/merged", dtype=dtype).state_dict()
        n_different = n_all = 0
        for name, module in wrapped.base_model.model.named_modules():
            if not hasattr(module, "lora_A"):
                continue
            a, b = module.lora_A["default"].weight.double(), module.lora_B["default"].weight.double()
            wanted = (before[name + ".weight"].double() + 2 * (b @ a)).to(dtype)
            found = after[name + ".weight"]
            gap = (wanted.view(torch.int16).int() - found.view(torch.int16).int()).abs()
            assert gap.max() <= 1, (name, gap.max())
            n_different, n_all = n_different + (gap != 0).sum().item(), n_all + gap.numel()
        assert 0 < n_all and n_different <= n_all / 1000, (n_different, n_all)


def test_names_as_they_occur(folder):
    import safetensors.torch
    wrap(llama, folder, target_modules=LINEARS)
    path, wanted = folder + "/adapter/adapter_model.safetensors", None
    tensors = safetensors.torch.load_file(path)
    for change in (lambda n: n, lambda n: n.replace("base_model.model.", ""),
                   lambda n: "module." + n, lambda n: n.replace("lora_A.", "lora_A.default."),
                   lambda n: n.replace("base_model.model.", "base_model.model._orig_mod.")):
        safetensors.torch.save_file({change(name): tensor for name, tensor in tensors.items()}, path)
        digest = ckpt("hash", folder + "/base", "--adapter", folder + "/adapter").split()[0]
        assert wanted in (None, digest), change(next(iter(tensors)))
        wanted = digest


def test_dtypes_and_files_of_adapters(folder):
    """Adapters in f16, bf16 and f32, and torch files, over one base."""
    wrapped = wrap(llama, folder, target_modules=LINEARS)
    for dtype in torch.float16, torch.bfloat16, torch.float32:
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(dtype).float()
    digests = set()
    for dtype, safe in (torch.float32, True), (torch.bfloat16, True), (torch.float32, False), (torch.bfloat16, False):
        state = {n: t.to(dtype) for n, t in peft.get_peft_model_state_dict(wrapped).items()}
        at = f"{folder}/{dtype}-{safe}"
        os.makedirs(at)
        with open(folder + "/adapter/adapter_config.json") as config, open(at + "/adapter_config.json", "w") as copy:
            copy.write(config.read())
        if safe:
            import safetensors.torch
            safetensors.torch.save_file(state, at + "/adapter_model.safetensors")
        else:
            torch.save(state, at + "/adapter_model.bin")
        digests.add(ckpt("hash", folder + "/base", "--adapter", at).split()[0])
    assert len(digests) == 1


def test_what_peft_calls_otherwise_is_refused(folder):
    torch.manual_seed(1)
    llama().save_pretrained(folder + "/base")
    kinds = {"IA3": peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]),
             "LOHA": peft.LoHaConfig(target_modules=["q_proj"]), "LOKR": peft.LoKrConfig(target_modules=["q_proj"]),
             "ADALORA": peft.AdaLoraConfig(target_modules=["q_proj"], total_step=9),
             "VERA": peft.VeraConfig(target_modules=["q_proj"]), "OFT": peft.OFTConfig(target_modules=["q_proj"], oft_block_size=8),
             "PROMPT_TUNING": peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
             "PREFIX_TUNING": peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
             "pissa": peft.LoraConfig(target_modules=["q_proj"], init_lora_weights="pissa"),
             "olora": peft.LoraConfig(target_modules=["q_proj"], init_lora_weights="olora"),
             "alora_invocation_tokens": peft.LoraConfig(target_modules=["q_proj"], alora_invocation_tokens=[1],
                                                        task_type="CAUSAL_LM")}
    for name, config in kinds.items():
        model = hf.LlamaForCausalLM.from_pretrained(folder + "/base")
        peft.get_peft_model(model, config).save_pretrained(f"{folder}/{name}")
        failed = refused(folder + "/base", f"{folder}/{name}", folder + "/x")
        assert name in failed, failed


def test_initializations_that_were_converted(folder):
    torch.manual_seed(1)
    llama().save_pretrained(folder + "/base")
    for how in "pissa", "olora":
        model = hf.LlamaForCausalLM.from_pretrained(folder + "/base")
        wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=how))
        wrapped.peft_config["default"].init_lora_weights = True
        wrapped.save_pretrained(f"{folder}/{how}-before")
        wrapped.peft_config["default"].init_lora_weights = how
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
        wrapped.eval()
        adapter = f"{folder}/{how}"
        wanted = logits(wrapped)
        wrapped.save_pretrained(adapter, path_initial_model_for_weight_conversion=f"{folder}/{how}-before")
        assert json.load(open(adapter + "/adapter_config.json"))["r"] == 8
        ckpt("merge", folder + "/base", "--adapter", adapter, "-o", adapter + "-merged")
        merged = hf.LlamaForCausalLM.from_pretrained(adapter + "-merged").eval()
        assert (logits(merged) - wanted).abs().max() < 1e-5, how


def test_peft_takes_what_extract_lora_makes(folder):
    """Factors and whole tensors, and an adapter of whole tensors alone."""
    torch.manual_seed(1)
    model = llama()
    model.save_pretrained(folder + "/base")
    model.lm_head.weight.data.add_(0.1)
    model.model.norm.weight.data.add_(0.1)
    for name in "whole", "both":
        if name == "both":
            model.model.layers[1].mlp.up_proj.weight.data.add_(torch.randn(48, 1) @ torch.randn(1, 32) * 0.1)
        at = f"{folder}/{name}"
        model.save_pretrained(at)
        ckpt("extract-lora", "--base", folder + "/base", "--tuned", at, "--rank", 1, "-o", at + "-lora")
        ckpt("verify", at + "-lora")
        merged = peft.PeftModel.from_pretrained(hf.LlamaForCausalLM.from_pretrained(folder + "/base"), at + "-lora")
        merged = merged.merge_and_unload().state_dict()
        for key, tensor in model.state_dict().items():
            assert (merged[key] - tensor).abs().max() < 1e-6, (name, key)
        ckpt("merge", folder + "/base", "--adapter", at + "-lora", "-o", at + ".safetensors")
        for key, tensor in load_file(at + ".safetensors").items():
            assert (merged[key] - tensor).abs().max() < 1e-6, (name, key)


def test_a_base_of_blocks_is_what_its_values_are(folder):
    wrap(llama, folder, target_modules=LINEARS)
    base, adapter = folder + "/base", folder + "/adapter"
    ckpt("quantize", base, "--type", "Q8_0", "--allow-fallback", "-o", folder + "/blocks.gguf")
    ckpt("convert", folder + "/blocks.gguf", "-o", folder + "/values")
    ckpt("merge", folder + "/values", "--adapter", adapter, "-o", folder + "/wanted")
    ckpt("merge", folder + "/blocks.gguf", "--adapter", adapter, "-o", folder + "/found")
    assert command.digest(folder + "/wanted") == command.digest(folder + "/found")
    ckpt("merge", folder + "/blocks.gguf", "--adapter", adapter, "-o", folder + "/found.gguf")
    ckpt("convert", folder + "/found.gguf", "-o", folder + "/again")
    assert command.digest(folder + "/wanted") == command.digest(folder + "/again")
    types = {t["name"]: t["dtype"] for t in json.loads(ckpt("ls", folder + "/found.gguf", "--names", "stored",
                                                            "--json"))["tensors"]}
    assert types["blk.0.attn_q.weight"] == "f32" and types["token_embd.weight"].lower() == "q8_0", types


if __name__ == "__main__":
    command.main(globals())
