/* convert.c - `ckpt convert`: any checkpoint in, any format out. */
#include "tools/report/writing.h"

static int run(ckpt_args *args) { return ckpt_writing_of(args, (ckpt_writing){0}); }

const ckpt_verb ckpt_verb_convert = {
    .name = "convert",
    .forms =
        "convert IN -o OUT [--to FORMAT] [--dtype [PATTERN=]DTYPE]... [--include WHAT]\n"
        "convert IN -o OUT [--match PATTERN] [--exclude PATTERN] [--rename s/RE/REPL/]\n"
        "convert IN -o OUT.gguf [--set KEY=VALUE] [--remove KEY]\n"
        "convert IN -o OUT.onnx [--external-data | --link] [--graph MODEL.onnx]",
    .summary = "write a checkpoint in another format, dtype or selection",
    .details =
        "Reads IN once, in bounded memory, and writes OUT: nothing at its path until it is whole. Prints the "
        "content digest of what was written. What the output cannot hold, or the selection left out, is said.\n\n"
        "  ckpt convert llama/ -o llama.safetensors --dtype bf16\n"
        "  ckpt convert llama/ -o small/ --exclude '*.lora_*' --shard-size 2GB\n"
        "  ckpt convert a.gguf -o b.gguf --set general.name='My model' --remove tokenizer.chat_template\n\n"
        "An ONNX model keeps its graph, byte for byte but for the tensors; --graph takes that of another model, "
        "whose tensors get the values of those of IN that have their names. What it keeps, and what of IN it has no "
        "place for, is said. With --link no large tensor is copied: OUT.onnx says where in the files of IN its bytes "
        "stand, and those files stay where they are.\n\n"
        "  ckpt convert llama/ --graph graph.onnx -o llama/model.onnx --link\n\n"
        "A new key of GGUF metadata is a bool (true, false), a u32, i32, u64 or i64 (whole numbers: the first that "
        "holds "
        "it), an f32 (1.5, 1e-5), or text, which double quotes may enclose.",
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
