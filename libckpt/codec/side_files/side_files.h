/* side_files.h - side files of the folders that formats read and write. They belong to the model and are copied
 * unchanged; only the dtype in config.json follows the output. */
#ifndef CKPT_CODEC_SIDE_FILES_SIDE_FILES_H
#define CKPT_CODEC_SIDE_FILES_SIDE_FILES_H

#include "libckpt/format/layout.h"

/* Adds every other file below the root that belongs to the model as a side file, config.json's text included; notes
 * what is left: weights in other files, folders of training state, what is too large or cannot be followed. The source
 * holds the files that were read as weights. */
ckpt_status ckpt_side_files_read(ckpt_index *index, ckpt_error *err);

#define CKPT_MAX_MODULES 32

/* A module of sentence-transformers, which modules.json lists. */
typedef struct ckpt_module {
  const char *path; /* its folder below the root, without `./` and a last slash; "" is the root; NULL: none there */
  const char *said; /* as the file has it */
  const char *type; /* its class: "sentence_transformers.models.Dense"; "" where it is not said */
} ckpt_module;

/* The modules that a modules.json of at most 64 KiB lists, up to where it is broken; texts are the arena's. ENOMEM,
 * EIO.
 */
ckpt_status ckpt_modules_read(ckpt_module out[CKPT_MAX_MODULES], size_t *n, ckpt_source *source, uint32_t file,
                              uint64_t n_bytes, ckpt_arena *arena, ckpt_error *err);

/* What a side file is that a trainer saved beside the model to go on from, by its name: "optimizer", "scheduler",
 * "scaler", "sampler", "data", "rng", "trainer", "arguments" or "custom"; NULL: nothing of a trainer's. Opaque: never
 * unpickled, carried whole where all of a checkpoint is. */
const char *ckpt_side_file_role(const char *name);
bool ckpt_side_file_is_training(const char *name); /* whether it has one */

/* Whether a side file is the tokenizer's, or of the words around what it is given: a chat template. */
bool ckpt_side_file_is_tokenizer(const char *name);

/* The rank whose random generators a side file holds, or -1. */
int64_t ckpt_side_file_rank(const char *name);

/* Adds a side file as a file of its own. Where it is config.json, the dtype in it becomes `dtype` (NULL leaves it):
 * EFORMAT where that is no JSON; as ckpt_layout_side_file. */
ckpt_status ckpt_side_file_lay(ckpt_layout *layout, const ckpt_side_file *side, const char *dtype, ckpt_error *err);

#endif
