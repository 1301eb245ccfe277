"""What PEFT saves as an adapter, we write under the name that PEFT looks for: it loads the same weights."""
import os
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("peft", "transformers")
import peft  # noqa: E402
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


if __name__ == "__main__":
    command.main(globals())
