/* read.c - what lies beside the weights of a model in its folder: carried, or named in a note.
 *
 * Carried as bytes: every regular file down to three folders below the root, but for weights of any format (one of them
 * was read, the others are copies of the same model; a small file of torch's without tensors is none), dot files,
 * checkpoints inside the folder, and files above 2 GiB, which optimizer states and modules may well have. The folders
 * that modules.json names (sentence-transformers) are parts of the model, and go whole. Any other folder with weights
 * that are not read stays whole: its config alone is of no use. So does the config of an adapter whose weights stay.
 * Links to folders are not followed: they lead in circles. Nothing that is left out goes unmentioned, but for dot files
 * and byte code. */
#include "libckpt/codec/side_files/side_files.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/index/config.h"

enum { MAX_DEPTH = 3, MAX_SIDE_FILES = 10000, MAX_LISTED = 100000, MAX_LOOKED_AT = 64 };
#define MAX_SIDE_BYTES (UINT64_C(2) << 30)

/* clang-format off */
static const char *const weight_patterns[] = {
    "*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.hdf5", "*.msgpack", "*.gguf", "*.ggml", "*.onnx",
    "*.onnx*data*", "*.pb", "*.tflite", "*.keras", "*.ot", "*.nemo", "*.distcp", ".metadata",
    "__*.metadata", "*.pkl", "*.pickle", "*.mlmodel", "*.pte", "*.engine", "*.pdparams", "*.params",
    "*.safetensors.index.json", "*.bin.index.json", "*.h5.index.json", "*.msgpack.index.json", NULL};
static const char *const torch_patterns[] = {"*.pt", "*.pth", "*.ckpt", NULL}; /* of what may hold no weights */
static const char *const rank_patterns[] = {"*.distcp", NULL}; /* empty ones are of ranks that had nothing to save */
static const char *const parts_patterns[] = {"latest", "latest_universal", NULL}; /* say which folder is a save */
static const char *const parts_folders[] = {
    "global_step*", "pytorch_model_fsdp_*", "optimizer_*", NULL};
static const char *const checkpoint_folders[] = {"checkpoint-*", NULL};
static const char *const script_patterns[] = {"zero_to_fp32.py", "zero_to_torch.py", NULL}; /* read what is here */
static const char *const tokenizer_patterns[] = {
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt",
    "added_tokens.json", "special_tokens_map.json", NULL};
static const char *const template_patterns[] = {
    "chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja", NULL};
static const struct { const char *pattern, *role; } training_files[] = { /* of Hugging Face's Trainer and accelerate */
    {"optimizer.pt", "optimizer"}, {"optimizer.bin", "optimizer"}, {"optimizer_*.bin", "optimizer"},
    {"scheduler.pt", "scheduler"}, {"scheduler.bin", "scheduler"}, {"scheduler_*.bin", "scheduler"},
    {"scaler.pt", "scaler"}, {"sampler.bin", "sampler"}, {"sampler_*.bin", "sampler"}, {"dl_state_dict*.bin", "data"},
    {"rng_state.pth", "rng"}, {"rng_state_*.pth", "rng"}, {"random_states_*.pkl", "rng"},
    {"custom_checkpoint_*.pkl", "custom"}, {"trainer_state.json", "trainer"}, {"training_args.bin", "arguments"}};
/* clang-format on */
enum { N_TRAINING_FILES = sizeof training_files / sizeof *training_files };

/* Names for one note: as many as fit, and how many there were. */
typedef struct names {
  char text[600];
  size_t n_text, n, n_shown;
} names;

typedef struct side_reader {
  ckpt_index *index;
  char **read; /* sorted names of the files that were read as weights */
  size_t n_read;
  size_t n_carried, n_listed, n_looked_at; /* files; entries of the folders entered so far; files that were read */
  names weights, folders, training, checkpoints, left, tokenizer; /* folders: with weights in them */
  bool has_looked; /* the folder in hand, with all below it, has no weights but those that go along */
  const char *modules[CKPT_MAX_MODULES]; /* folders that are parts of the model */
  size_t n_modules;
  bool has_other_adapter; /* whose weights lie beside those that were read */
} side_reader;

static bool matches(const char *const *patterns, const char *name) {
  for (; *patterns != NULL; patterns++)
    if (fnmatch(*patterns, name, FNM_CASEFOLD) == 0) return true;
  return false;
}

bool ckpt_side_file_is_tokenizer(const char *name) {
  return matches(tokenizer_patterns, name) || matches(template_patterns, name);
}

const char *ckpt_side_file_role(const char *name) {
  for (size_t i = 0; i < N_TRAINING_FILES; i++)
    if (fnmatch(training_files[i].pattern, ckpt_path_name(name), FNM_CASEFOLD) == 0) return training_files[i].role;
  return NULL;
}

bool ckpt_side_file_is_training(const char *name) { return ckpt_side_file_role(name) != NULL; }

int64_t ckpt_side_file_rank(const char *name) {
  static const char *const begins[] = {"rng_state_", "random_states_"};
  name = ckpt_path_name(name);
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    size_t n = strlen(begins[i]), n_digits = strncmp(name, begins[i], n) != 0 ? 0 : strspn(name + n, "0123456789");
    if (n_digits != 0 && n_digits < 10 && name[n + n_digits] == '.') return strtoll(name + n, NULL, 10);
  }
  return -1;
}

static void add_name(names *list, const char *name, const char *suffix) {
  list->n++;
  if (list->n_shown + 1 != list->n) return; /* one did not fit: the rest is only counted */
  size_t n_room = sizeof list->text - list->n_text;
  int n = snprintf(list->text + list->n_text, n_room, "%s%s%s", list->n == 1 ? "" : ", ", name, suffix);
  if (n > 0 && (size_t)n < n_room) {
    list->n_text += (size_t)n;
    list->n_shown++;
  } else {
    list->text[list->n_text] = '\0';
  }
}

/* of: what kind of files a copy lacks; NULL: they are none of this checkpoint's. */
static ckpt_status write_note(const side_reader *r, const names *list, const char *said, const char *of,
                              bool is_problem, ckpt_error *err) {
  char more[40] = "";
  if (list->n == 0) return CKPT_OK;
  if (list->n > list->n_shown) snprintf(more, sizeof more, " and %zu more", list->n - list->n_shown);
  CKPT_TRY(ckpt_index_note(r->index, is_problem, err, "%s %s%s", said, list->text, more));
  if (of == NULL) return CKPT_OK;
  ckpt_note *note = &r->index->notes[r->index->n_notes - 1];
  note->left = ckpt_arena_printf(&r->index->arena, "%zu %s%s%s (%s%s)", list->n,
                                 list == &r->folders ? "folder" : "file", ckpt_plural(list->n), of, list->text, more);
  CKPT_TRY_ALLOC(note->left, err);
  if (list == &r->training) note->kind = CKPT_NOTE_STATE_LEFT;
  if (list == &r->weights || list == &r->folders) note->kind = CKPT_NOTE_WEIGHTS_LEFT;
  return CKPT_OK;
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool was_read(const side_reader *r, const char *name) {
  return r->n_read != 0 && bsearch(&name, r->read, r->n_read, sizeof *r->read, compare_texts) != NULL;
}

/* Whether files in a folder were read. */
static bool was_read_below(const side_reader *r, const char *path) {
  size_t n = strlen(path);
  for (size_t i = 0; i < r->n_read; i++)
    if (strncmp(r->read[i], path, n) == 0 && r->read[i][n] == '/') return true;
  return false;
}

/* Whether a path is that of a folder which is a part of the model, or in one. */
static bool is_in_module(const side_reader *r, const char *path) {
  for (size_t i = 0; i < r->n_modules; i++) {
    const size_t n = strlen(r->modules[i]);
    if (strncmp(path, r->modules[i], n) == 0 && (path[n] == '/' || path[n] == '\0')) return true;
  }
  return false;
}

/* Whether such a folder is below another one. */
static bool has_module(const side_reader *r, const char *path) {
  const size_t n = strlen(path);
  for (size_t i = 0; i < r->n_modules; i++)
    if (strncmp(r->modules[i], path, n) == 0 && r->modules[i][n] == '/') return true;
  return false;
}

/* The folders that modules.json names; what is no list names none. */
static ckpt_status read_modules(side_reader *r, const ckpt_entry *entry, ckpt_error *err) {
  ckpt_module modules[CKPT_MAX_MODULES];
  uint32_t file;
  uint64_t size;
  size_t n;
  ckpt_error ignored = {0};
  if (ckpt_source_add(r->index->source, entry->name, &file, &size, &ignored) != CKPT_OK) return CKPT_OK;
  CKPT_TRY(ckpt_modules_read(modules, &n, r->index->source, file, size, &r->index->arena, err));
  for (size_t i = 0; i < n; i++)
    if (modules[i].path != NULL && modules[i].path[0] != '\0') r->modules[r->n_modules++] = modules[i].path;
  return CKPT_OK;
}

/* What in the folder says what its other files are. */
static ckpt_status look_ahead(side_reader *r, const ckpt_entry *entries, size_t n, ckpt_error *err) {
  static const char *const adapters[] = {"adapter_model.safetensors", "adapter_model.bin"};
  const bool reads_adapter = was_read(r, adapters[0]) || was_read(r, adapters[1]);
  for (size_t i = 0; i < n; i++) {
    const char *name = entries[i].name;
    const bool is_adapter = strcmp(name, adapters[0]) == 0 || strcmp(name, adapters[1]) == 0;
    r->has_other_adapter = r->has_other_adapter || (is_adapter && !reads_adapter);
    if (entries[i].is_file && strcmp(name, "modules.json") == 0) CKPT_TRY(read_modules(r, &entries[i], err));
  }
  return CKPT_OK;
}

/* Whether a file said which folder to read: those beside it are saves of their own. */
static bool was_followed(const side_reader *r) {
  for (const char *const *said = parts_patterns; *said != NULL; said++)
    if (was_read(r, *said)) return true;
  return false;
}

/* Whether a file that is called as weights are holds something else of the run (Lightning's meta.pt). */
static bool is_plain(side_reader *r, const ckpt_entry *entry, const char *path) {
  if (!matches(torch_patterns, entry->name) || r->n_looked_at == MAX_LOOKED_AT) return false;
  r->n_looked_at++;
  return ckpt_torch_is_plain_file(r->index, ckpt_source_root(r->index->source), path);
}

/* An empty file of a rank that had nothing to save. */
static bool is_empty(const ckpt_entry *entry) { return entry->n_bytes == 0 && matches(rank_patterns, entry->name); }

/* Whether a file holds weights that were not read, and is no part of the model. */
static bool is_other_weights(side_reader *r, const ckpt_entry *entry, const char *path) {
  return !was_read(r, path) && !is_empty(entry) && !ckpt_side_file_is_training(path) &&
         matches(weight_patterns, entry->name) && !is_in_module(r, path) && !is_plain(r, entry, path);
}

/* A regular file, by its name in its folder and its path below the root. */
static ckpt_status take_file(side_reader *r, const ckpt_entry *entry, const char *path, ckpt_error *err) {
  if (was_read(r, path) || is_empty(entry)) return CKPT_OK;
  bool is_training = ckpt_side_file_is_training(path);
  if (matches(parts_patterns, entry->name)) {
    add_name(was_followed(r) ? &r->checkpoints : &r->training, path, "");
  } else if (!r->has_looked && is_other_weights(r, entry, path)) {
    add_name(&r->weights, path, "");
  } else if (r->has_other_adapter && strcmp(path, "adapter_config.json") == 0) {
    add_name(&r->left, path, " (of an adapter that is not read)");
  } else if (matches(script_patterns, entry->name)) {
    add_name(&r->left, path, "");
  } else if (!is_training && entry->n_bytes > MAX_SIDE_BYTES && !is_in_module(r, path)) {
    add_name(&r->left, path, " (larger than 2 GiB)");
  } else if (r->n_carried == MAX_SIDE_FILES) {
    add_name(&r->left, path, "");
  } else {
    uint32_t file;
    uint64_t size;
    r->n_carried++;
    ckpt_error defect = {0};
    ckpt_status status = ckpt_source_add(r->index->source, path, &file, &size, &defect);
    if (status != CKPT_OK) return ckpt_defects_pass(&r->index->defects, status, &defect, err);
    CKPT_TRY(ckpt_index_add_side_file(r->index, path, file, size, err));
  }
  return CKPT_OK;
}

static bool is_skipped(const ckpt_entry *entry) {
  return entry->name[0] == '.' || strcmp(entry->name, "__pycache__") == 0;
}

/* Whether a folder is a save or a checkpoint of its own, which is named and not looked into. */
static bool is_own(const char *name) { return matches(parts_folders, name) || matches(checkpoint_folders, name); }

/* Looks for other weights in a folder and below it, as far as files in it are carried. */
static ckpt_status find_weights(side_reader *r, const char *sub, int depth, bool *has, ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n_entries = 0;
  ckpt_status status;
  char path[PATH_MAX];
  CKPT_TRY_GOTO(ckpt_list(&entries, &n_entries, ckpt_source_root(r->index->source), sub, err));
  r->n_listed += n_entries;
  for (size_t i = 0; i < n_entries && !*has && r->n_listed <= MAX_LISTED; i++) {
    const ckpt_entry *entry = &entries[i];
    const int n = snprintf(path, sizeof path, "%s/%s", sub, entry->name);
    if (is_skipped(entry) || n < 0 || (size_t)n >= sizeof path) continue;
    if (entry->is_file)
      *has = is_other_weights(r, entry, path);
    else if (entry->is_folder && !entry->is_link && !is_own(entry->name) && depth < MAX_DEPTH)
      CKPT_TRY_GOTO(find_weights(r, path, depth + 1, has, err));
  }
done:
  ckpt_list_free(entries, n_entries);
  return status;
}

static ckpt_status take_folder(side_reader *r, const char *sub, int depth, ckpt_error *err);

/* A folder below the root: where weights in it are not read it stays whole, unless others in it are, or go along. */
static ckpt_status take_below(side_reader *r, const char *path, int depth, ckpt_error *err) {
  const bool had_looked = r->has_looked;
  const size_t n_listed = r->n_listed;
  bool has = false;
  if (!had_looked && !is_in_module(r, path) && !has_module(r, path) && !was_read_below(r, path)) {
    CKPT_TRY(find_weights(r, path, depth, &has, err));
    r->has_looked = r->n_listed <= MAX_LISTED; /* else its files are looked at one by one */
    if (!has) r->n_listed = n_listed;          /* they are listed again */
  }
  if (has) add_name(&r->folders, path, "/");
  const ckpt_status status = has ? CKPT_OK : take_folder(r, path, depth, err);
  r->has_looked = had_looked;
  return status;
}

/* Everything in the folder `sub` below the root ("" for the root), which is `depth` folders down. */
static ckpt_status take_folder(side_reader *r, const char *sub, int depth, ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n_entries = 0;
  ckpt_status status;
  char path[PATH_MAX];
  CKPT_TRY_GOTO(ckpt_list(&entries, &n_entries, ckpt_source_root(r->index->source), sub, err));
  r->n_listed += n_entries;
  if (sub[0] == '\0') CKPT_TRY_GOTO(look_ahead(r, entries, n_entries, err));
  for (size_t i = 0; i < n_entries; i++) {
    const ckpt_entry *entry = &entries[i];
    if (is_skipped(entry)) continue;
    int n = snprintf(path, sizeof path, "%s%s%s", sub, sub[0] == '\0' ? "" : "/", entry->name);
    if (n < 0 || (size_t)n >= sizeof path)
      add_name(&r->left, entry->name, " (path too long)");
    else if (entry->is_file || (sub[0] == '\0' && strcmp(path, "config.json") == 0)) /* what is none fails there */
      CKPT_TRY_GOTO(take_file(r, entry, path, err));
    else if (sub[0] == '\0' && matches(tokenizer_patterns, path))
      add_name(&r->tokenizer, path, entry->is_folder ? " (a folder)" : " (no regular file of this folder)");
    else if (!entry->is_folder)
      add_name(&r->left, path, " (no regular file of this folder)");
    else if (matches(parts_folders, entry->name)) {
      if (!was_read_below(r, path)) add_name(was_followed(r) ? &r->checkpoints : &r->training, path, "/");
    } else if (matches(checkpoint_folders, entry->name))
      add_name(&r->checkpoints, path, "/");
    else if (entry->is_link)
      add_name(&r->left, path, "/ (a link to a folder)");
    else if (depth == MAX_DEPTH || r->n_listed > MAX_LISTED)
      add_name(&r->left, path, depth == MAX_DEPTH ? "/ (too deep)" : "/ (too many files before it)");
    else
      CKPT_TRY_GOTO(take_below(r, path, depth + 1, err));
  }
done:
  ckpt_list_free(entries, n_entries);
  return status;
}

/* Config is kept as text: writing may have to splice the dtype into it. */
static ckpt_status load_config(ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    ckpt_side_file *side = &index->side_files[i];
    if (strcmp(side->name, "config.json") != 0) continue;
    const char *text;
    CKPT_TRY(ckpt_index_side_text(index, side, CKPT_CONFIG_MAX_BYTES, &text, err));
    side->text = text;
  }
  return CKPT_OK;
}

static ckpt_status take_all(side_reader *r, ckpt_error *err) {
  CKPT_TRY(take_folder(r, "", 0, err));
  CKPT_TRY(
      write_note(r, &r->weights, "also holds other weights, not read or carried:", " of other weights", false, err));
  CKPT_TRY(write_note(r, &r->folders, "also holds folders with other weights, not read or carried:",
                      " with other weights", false, err));
  CKPT_TRY(
      write_note(r, &r->training, "also holds training state, not read or carried:", " of training state", false, err));
  CKPT_TRY(write_note(r, &r->checkpoints, "also holds other checkpoints:", NULL, false, err));
  CKPT_TRY(write_note(r, &r->left, "files not carried:", "", false, err));
  CKPT_TRY(write_note(r, &r->tokenizer,
                      "tokenizer files that cannot be read, and are not carried:", " of the tokenizer", true, err));
  return load_config(r->index, err);
}

ckpt_status ckpt_side_files_read(ckpt_index *index, ckpt_error *err) {
  side_reader *r = calloc(1, sizeof *r);
  CKPT_TRY_ALLOC(r, err);
  ckpt_status status;
  uint32_t n = ckpt_source_count(index->source);
  r->index = index;
  r->read = calloc(n, sizeof *r->read);
  if (r->read == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (; r->n_read < n; r->n_read++) {
    r->read[r->n_read] = strdup(ckpt_source_name(index->source, (uint32_t)r->n_read));
    if (r->read[r->n_read] == NULL) {
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
      goto done;
    }
  }
  qsort(r->read, r->n_read, sizeof *r->read, compare_texts);
  status = take_all(r, err);
done:
  for (size_t i = 0; i < r->n_read; i++) free(r->read[i]);
  free(r->read);
  free(r);
  return status;
}
