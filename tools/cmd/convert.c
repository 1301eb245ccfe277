/* convert.c - `ckpt convert`: any checkpoint in, any format out. */
#include "tools/report/writing.h"

static int run(ckpt_args *args) { return ckpt_writing_of(args, (ckpt_writing){0}); }

const ckpt_verb ckpt_verb_convert = {
    .name = "convert",
    .forms =
        "convert IN -o OUT [--to FORMAT] [--dtype [PATTERN=]DTYPE]... [--include WHAT]\n"
        "convert IN -o OUT [--match PATTERN] [--exclude PATTERN] [--rename s/RE/REPL/]\n"
        "convert IN -o OUT.gguf [--set KEY=VALUE] [--remove KEY]\n"
        "convert IN -o OUT.onnx [--external-data | --link] [--graph MODEL.onnx [--graph-weights OLD] [--partial]]",
    .summary = "write a checkpoint in another format, dtype or selection",
    .details =
        "Reads IN once, in bounded memory, and writes OUT. OUT appears when it is whole. Prints the content "
        "digest of the output. Reports what the output cannot hold and what the selection left out.\n"
        "\n"
        "  ckpt convert llama/ -o llama.safetensors --dtype bf16\n"
        "  ckpt convert llama/ -o small/ --exclude '*.lora_*' --shard-size 2GB\n"
        "  ckpt convert a.gguf -o b.gguf --set general.name='My model' --remove tokenizer.chat_template\n"
        "\n"
        "An ONNX model keeps its graph byte for byte; only its tensors change. --graph takes the graph of "
        "another model and gives its tensors the values of IN's tensors with the same names. An exporter may "
        "store weights under names of its own, and transposed: with --graph-weights, the checkpoint that it "
        "exported, they are found by their values. A parameter on either side without its counterpart is an "
        "error, unless --partial. --link copies no large tensor: OUT.onnx refers to the bytes in IN's files, "
        "which must stay in place.\n"
        "\n"
        "  ckpt convert llama/ --graph graph.onnx -o llama/model.onnx --link\n"
        "  ckpt convert tuned/ --graph base.onnx --graph-weights base/ -o tuned.onnx\n"
        "\n"
        "An adapter that PEFT saved becomes llama.cpp's, and the reverse, by the family of its base: the model of "
        "--like, else the one that the adapter names.\n"
        "\n"
        "  ckpt convert lora/ -o lora.gguf\n"
        "  ckpt convert lora.gguf -o lora/ --like base/\n"
        "\n"
        "A new key of GGUF metadata is a bool (true, false), a whole number, an f32 (1.5, 1e-5), or text, "
        "optionally in double quotes. A whole number becomes the first of u32, i32, u64 and i64 that holds "
        "it.",
    .json =
        "{\"status\",\"output\",\"format\",\"n_tensors\",\"n_params\",\"n_bytes\",\"dtype\",\"weights\",\"dropped\":[],"
        "\"n_underflow\",\"underflowed\":[{\"name\",\"n\"}],\"digest\",\"seconds\",\"peak_bytes\",\"notes\":[]}; "
        "several outputs: "
        "{\"status\",\"outputs\":[...],\"notes\":[]}",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
