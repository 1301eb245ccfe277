/* convert.c - `ckpt convert`: any checkpoint in, any format out. */
#include "libckpt/base/error.h"
#include "tools/cli/shared_options.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

static const ckpt_option options[] = {
    {"to", 0, CKPT_OPTION_FORMAT, 0, "FORMAT", "output format (default: by the suffix; a folder is hf)"},
    CKPT_OPTION_CASTS_ROW,
    CKPT_OPTION_ALLOW_OVERFLOW_ROW,
    CKPT_OPTION_INCLUDE_ROW("by format"),
    {"match", 0, CKPT_OPTION_PATTERN, CKPT_OPTION_REPEATED, "PATTERN", "keep only names that match"},
    {"exclude", 0, CKPT_OPTION_PATTERN, CKPT_OPTION_REPEATED, "PATTERN",
     "drop names that match; a tensor goes when all its names match"},
    {"rename", 0, CKPT_OPTION_TEXT, CKPT_OPTION_REPEATED, "s/RE/REPL/",
     "rename tensors under all their names; rules apply in order"},
    CKPT_OPTION_SHARD_SIZE_ROW,
    CKPT_OPTION_ZSTD_ROW,
    {"set", 0, CKPT_OPTION_TEXT, CKPT_OPTION_REPEATED, "KEY=VALUE",
     "change or add a GGUF metadata value; a changed one keeps its type"},
    {"remove", 0, CKPT_OPTION_TEXT, CKPT_OPTION_REPEATED, "KEY", "drop a GGUF metadata value; applies before --set"},
    {"external-data", 0, CKPT_OPTION_FLAG, 0, NULL, "ONNX: write large data to OUT.onnx.data (always from 2 GB on)"},
    {"link", 0, CKPT_OPTION_FLAG, 0, NULL, "ONNX: leave large data in IN's files, which must lie below OUT's folder"},
    {"graph", 0, CKPT_OPTION_PATH, 0, "MODEL.onnx", "ONNX: put IN's tensors into this graph, by name"},
    CKPT_OPTION_LATER_ROW("tied", CKPT_OPTION_TEXT, "keep|untie|error"),
    CKPT_OPTION_LATER_ROW("pre", CKPT_OPTION_TEXT, "NAME"),
    CKPT_OPTION_LATER_ROW("opset", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("dialect", CKPT_OPTION_TEXT, "NAME"),
    CKPT_OPTION_LATER_ROW("kv-cache", CKPT_OPTION_FLAG, NULL),
    CKPT_OPTION_LATER_ROW("quantize", CKPT_OPTION_TEXT, "KIND"),
    CKPT_OPTION_END};

static ckpt_status read_selection(ckpt_args *args, ckpt_convert_options *selection, ckpt_error *err) {
  *selection = (ckpt_convert_options){.include = ckpt_args_text(args, "include", NULL),
                                      .allow_overflow = ckpt_args_has(args, "allow-overflow"),
                                      .external_data = ckpt_args_has(args, "external-data"),
                                      .link = ckpt_args_has(args, "link"),
                                      .graph = ckpt_args_text(args, "graph", NULL)};
  CKPT_TRY(ckpt_args_texts(&selection->match, args, "match", err));
  CKPT_TRY(ckpt_args_texts(&selection->exclude, args, "exclude", err));
  CKPT_TRY(ckpt_args_texts(&selection->rename, args, "rename", err));
  CKPT_TRY(ckpt_args_texts(&selection->set, args, "set", err));
  CKPT_TRY(ckpt_args_texts(&selection->remove, args, "remove", err));
  return ckpt_writing_casts(selection, args, err);
}

static int run(ckpt_args *args) {
  ckpt_writing writing = {.to = ckpt_args_text(args, "to", NULL),
                          .shard_size = ckpt_args_size(args, "shard-size", 0),
                          .zstd_level = (uint32_t)ckpt_args_size(args, "zstd", 0)};
  ckpt_error err = {0};
  if (read_selection(args, &writing.selection, &err) != CKPT_OK) return ckpt_report_error(args, &err);
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_convert = {
    .name = "convert",
    .forms =
        "convert IN -o OUT [--to FORMAT] [--dtype [PATTERN=]DTYPE]... [--include WHAT]\n"
        "convert IN -o OUT [--match PATTERN] [--exclude PATTERN] [--rename s/RE/REPL/]\n"
        "convert IN -o OUT.gguf [--set KEY=VALUE] [--remove KEY]\n"
        "convert IN -o OUT.onnx [--external-data | --link] [--graph MODEL.onnx]",
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
        "another model and gives its tensors the values of IN's tensors with the same names. It reports "
        "which of the model's own values stay, and which tensors of IN the graph does not use. --link copies "
        "no large tensor: OUT.onnx refers to the bytes in IN's files, which must stay in place.\n"
        "\n"
        "  ckpt convert llama/ --graph graph.onnx -o llama/model.onnx --link\n"
        "\n"
        "A new key of GGUF metadata is a bool (true, false), a whole number, an f32 (1.5, 1e-5), or text, "
        "optionally in double quotes. A whole number becomes the first of u32, i32, u64 and i64 that holds "
        "it.",
    .json =
        "{\"status\",\"output\",\"format\",\"n_tensors\",\"n_params\",\"n_bytes\",\"dtype\",\"weights\",\"dropped\":[],"
        "\"n_underflow\",\"underflowed\":[{\"name\",\"n\"}],\"digest\",\"seconds\",\"peak_bytes\",\"notes\":[]}; "
        "several outputs: "
        "{\"status\",\"outputs\":[...],\"notes\":[]}",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
