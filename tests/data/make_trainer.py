"""Writes tests/data/trainer/<case>/: a checkpoint of the Hugging Face Trainer, or of accelerate, and beside each what its
optimizer holds, by the names that the run knows.

    python make_trainer.py [FOLDER [CASE...]]        (transformers 5.23.0, accelerate 1.15.0, peft 0.21.2, torch 2.15.0)
"""
import contextlib
import io
import os
import shutil
import sys
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer")
DATA = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8


def llama(**more):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(**dict(dict(
        num_hidden_layers=2, hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1, vocab_size=16,
        max_position_embeddings=8), **more)))


def gpt2(**more):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=16, n_positions=8, **more))


def adapted(model, **lora):
    """With modules_to_save, those are trained whole."""
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(r=2, task_type="CAUSAL_LM", **lora))


def llama_lora(**lora):
    return adapted(llama(**SMALL), **lora)


def gpt2_lora(**lora):
    return adapted(gpt2(), fan_in_fan_out=True, **lora)


def adafactor(parameters):
    from transformers.optimization import Adafactor
    return Adafactor(parameters, lr=0.01, relative_step=False, scale_parameter=False)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


class Older(torch.optim.AdamW):
    """Its steps are numbers, as PyTorch counted before 1.12, and it keeps something of its own."""

    def state_dict(self):
        states = super().state_dict()
        for state in states["state"].values():
            state["step"] = int(state["step"])
        return dict(states, own={"loss_scale": 8.0})


def older(parameters):
    return Older(parameters, lr=0.01)


SMALL = {"num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 6, "num_attention_heads": 1,
         "vocab_size": 8}
OPTIMIZERS = {"llama-adafactor": adafactor, "llama-sgd": sgd, "llama-older": older}

# name: the model, the program that saves, more of its configuration
CASES = {
    "llama": (llama, "trainer", {}),
    "llama-biases": (llama, "trainer", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "gpt2": (gpt2, "trainer", {}),
    "llama-accelerate": (llama, "accelerate", {}),
    "llama-adafactor": (llama, "accelerate", SMALL),
    "llama-sgd": (llama, "accelerate", SMALL),
    "llama-older": (llama, "accelerate", SMALL),
    "llama-lora": (llama_lora, "trainer", {"target_modules": "all-linear", "modules_to_save": ["lm_head", "norm"]}),
    "llama-dora": (llama_lora, "trainer", {"target_modules": ["embed_tokens", "down_proj", "v_proj"], "use_dora": True}),
    "gpt2-lora": (gpt2_lora, "trainer", {"target_modules": ["c_attn", "c_proj", "c_fc"], "lora_bias": True}),
}
KEYS = {"momentum_buffer": "momentum"}


def states_of(model, optimizer):
    """Every tensor of the run, as ckpt calls them."""
    tensors, names = dict(model.state_dict()), {id(p): name for name, p in model.named_parameters()}
    if hasattr(model, "peft_config"):
        from peft import get_peft_model_state_dict
        tensors = get_peft_model_state_dict(model)
        names = {i: name.replace("_vector.default.weight", "_vector").replace(".modules_to_save", "").replace(".default", "")
                 for i, name in names.items()}
    for parameter, state in getattr(optimizer, "optimizer", optimizer).state.items():
        for key, value in state.items():
            value = torch.tensor(float(value)) if key == "step" else value
            tensors["optimizer.state.%s.%s" % (names[id(parameter)], KEYS.get(key, key))] = value
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def train(model, folder, n_steps=2, resumed=None):
    """The Trainer's checkpoint after 2 steps is folder/checkpoint-2; the model and its optimizer after n_steps."""
    from transformers import Trainer, TrainingArguments
    args = TrainingArguments(folder, max_steps=n_steps, save_steps=2, report_to=[], use_cpu=True, weight_decay=0.1,
                             per_device_train_batch_size=2, disable_tqdm=True, logging_strategy="no", learning_rate=0.01)
    trainer = Trainer(model, args, train_dataset=DATA)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train(resume_from_checkpoint=resumed)
    return trainer


def accelerate(model, folder, optimizer):
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer(model.parameters()))
    for _ in range(2):
        model(torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(folder)
    model.config.save_pretrained(folder)
    return optimizer


def write(root, case):
    make, program, more = CASES[case]
    torch.manual_seed(1)
    model, folder, run = make(**more), os.path.join(root, case), os.path.join(root, "run")
    shutil.rmtree(folder, ignore_errors=True)
    if program == "trainer":
        optimizer = train(model, run).optimizer
        os.rename(os.path.join(run, "checkpoint-2"), folder)
        shutil.rmtree(run)
    else:
        optimizer = accelerate(model, folder, OPTIMIZERS.get(case, adamw))
    for name in os.listdir(folder):
        if name.startswith(("rng_state", "random_states", "training_args")) or name in ("generation_config.json", "README.md"):
            os.remove(os.path.join(folder, name))  # of the machine that ran it
    save_file(states_of(model, optimizer), folder + ".safetensors")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    os.makedirs(root, exist_ok=True)
    for case in sys.argv[2:] or CASES:
        write(root, case)


if __name__ == "__main__":
    main()
