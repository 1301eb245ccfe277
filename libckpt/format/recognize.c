/* recognize.c - see recognize.h. */
#include "libckpt/format/recognize.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/io/contained.h"
#include "libckpt/io/temporary.h"

enum {
  HEAD_BYTES = 4096,
  MAX_LOOKED_AT = 256, /* files of a folder */
  MAX_NAMED = 3
};

typedef unsigned long long ull;

/* ---- by content -------------------------------------------------------------------------------------------------- */

/* The name of a zip's first entry begins at byte 30; PyTorch's archives have their data.pkl first, in a folder. */
static ckpt_content zip_content(const uint8_t *head, size_t n_head) {
  static const char exported[] = "serialized_exported_program.json";
  size_t n_name = n_head < 30 ? 0 : ckpt_le16(head + 26);
  if (n_name > n_head - 30) n_name = n_head - 30;
  const char *name = (const char *)head + 30;
  if (n_name == 8 && memcmp(name, "data.pkl", 8) == 0)
    return (ckpt_content){"a PyTorch archive packed again without its folder", "pack the folder that its files were in",
                          true};
  if (n_name == sizeof exported - 1 && memcmp(name, exported, n_name) == 0)
    return (ckpt_content){"a torch.export archive, which is a program", "save its state_dict with torch.save", true};
  if ((n_name > 8 && memcmp(name + n_name - 8, "data.pkl", 8) == 0) || memmem(head, n_head, "/data.pkl", 9) != NULL)
    return (ckpt_content){"a PyTorch file (zip with data.pkl)", "name the file", true};
  if (n_name >= 4 && memcmp(name + n_name - 4, ".npy", 4) == 0)
    return (ckpt_content){"a NumPy archive (npz)", NULL, true};
  return (ckpt_content){"a zip archive", NULL, true};
}

/* A tar archive whose first member is one of the four of the oldest torch.save. */
static bool is_torch_tar(const uint8_t *head, size_t n_head) {
  static const char *const members[] = {"sys_info", "pickle", "tensors", "storages"};
  if (n_head < 262 || memcmp(head + 257, "ustar", 5) != 0) return false;
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    if (memcmp(head, members[i], strlen(members[i]) + 1) == 0) return true;
  return false;
}

/* ModelProto: field 1, ir_version, and field 2, the producer's name, as every exporter writes them. */
static bool is_onnx(const uint8_t *head, size_t n_head) {
  if (n_head < 6 || head[0] != 0x08 || head[1] < 3 || head[1] > 20 || head[2] != 0x12) return false;
  size_t n_name = head[3];
  if (n_name == 0 || n_name > 100 || n_head < 5 + n_name) return false;
  for (size_t i = 0; i < n_name; i++)
    if (head[4 + i] < 0x20 || head[4 + i] > 0x7E) return false;
  uint8_t next = head[4 + n_name]; /* producer_version, domain, model_version, doc_string, graph or opset_import */
  return next == 0x1A || next == 0x22 || next == 0x28 || next == 0x32 || next == 0x3A || next == 0x42;
}

static bool is_json(const uint8_t *head, size_t n_head) {
  size_t i = 0;
  while (i < n_head && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t')) i++;
  if (i == n_head || head[i] != '{') return false;
  for (i++; i < n_head && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t');) i++;
  return i < n_head && (head[i] == '"' || head[i] == '}');
}

ckpt_content ckpt_content_of(const uint8_t *head, size_t n_head) {
  static const struct {
    const char *magic;
    size_t n_magic;
    ckpt_content content;
  } rows[] = {
      {"version https://git-lfs.github.com/spec/v1",
       42,
       {"a Git LFS pointer, not the weights", "run git lfs pull", true}},
      {"GGUF", 4, {"a GGUF file", "name the file", true}},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
       14,
       {"a PyTorch file of before 1.6", "name the file", true}},
      {"\x89HDF\r\n\x1a\n", 8, {"an HDF5 file", NULL, true}},
      {"\x93NUMPY", 6, {"a NumPy array", NULL, true}},
      {"<html", 5, {"an HTML page, perhaps a failed download", "fetch it again", false}},
      {"<!DOC", 5, {"an HTML page, perhaps a failed download", "fetch it again", false}},
      {"\x1f\x8b", 2, {"compressed with gzip", "unpack it first", true}},
      {"\x28\xb5\x2f\xfd", 4, {"compressed with zstd", "unpack it first", true}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (n_head >= rows[i].n_magic && memcmp(head, rows[i].magic, rows[i].n_magic) == 0) return rows[i].content;
  if (n_head >= 4 && memcmp(head, "PK\3\4", 4) == 0) return zip_content(head, n_head);
  if (is_torch_tar(head, n_head)) return (ckpt_content){"a PyTorch file of 2016 (tar)", "save it again", true};
  if (n_head >= 262 && memcmp(head + 257, "ustar", 5) == 0)
    return (ckpt_content){"a tar archive", "unpack it first", true};
  if (n_head >= 3 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
    return (ckpt_content){"a pickle that torch.save did not write", "ckpt scan says what it does", true};
  if (is_json(head, n_head)) return (ckpt_content){"a JSON file, not the weights", "name its folder", false};
  if (is_onnx(head, n_head)) return (ckpt_content){"an ONNX model", "name the file", true};
  return (ckpt_content){NULL, NULL, false};
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static ckpt_status refuse_content(const char *path, const char *seen, const char *remedy, ckpt_error *err) {
  if (remedy != NULL) return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "%s (%s)", seen, remedy);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "%s; this version cannot read it yet", seen);
}

ckpt_status ckpt_refuse_file(const ckpt_probe *probe, ckpt_error *err) {
  if (probe->n_bytes == 0) return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL, "the file is empty");
  ckpt_content content = ckpt_content_of(probe->head, probe->n_head);
  if (content.name != NULL) return refuse_content(probe->path, content.name, content.remedy, err);
  const ckpt_format *named = ckpt_format_of_suffix(probe->path);
  if (named != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL,
                     "named as %s, but its content is not (%llu byte%s; truncated or damaged?)", named->name,
                     (ull)probe->n_bytes, ckpt_plural(probe->n_bytes));
  return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL, "not a checkpoint of a known format (%llu byte%s)",
                   (ull)probe->n_bytes, ckpt_plural(probe->n_bytes));
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

/* A list in a message: the first few, and how many more there are. */
typedef struct listed {
  char text[600];
  size_t n_text, n;
} listed;

static void add(listed *list, const char *name, const char *what) {
  if (list->n++ >= MAX_NAMED) return;
  int n = snprintf(list->text + list->n_text, sizeof list->text - list->n_text, "%s%s%s%s", list->n == 1 ? "" : ", ",
                   name, what == NULL ? "" : " is ", what == NULL ? "" : what);
  if (n > 0 && (size_t)n < sizeof list->text - list->n_text) list->n_text += (size_t)n;
}

static const char *finish(listed *list) {
  if (list->n > MAX_NAMED)
    snprintf(list->text + list->n_text, sizeof list->text - list->n_text, " and %zu more", list->n - MAX_NAMED);
  return list->text;
}

bool ckpt_names_weights(const char *name, size_t n_name) {
  static const char *const suffixes[] = {".safetensors", ".bin",  ".pt", ".pth",    ".ckpt",
                                         ".gguf",        ".onnx", ".h5", ".distcp", ".index.json"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (ckpt_text_ends_in(name, n_name, suffixes[i])) return true;
  return false;
}

/* An entry that is neither file nor folder: fails if it is a link that cannot be followed, and says why. */
static ckpt_status check_link(const ckpt_root *root, const ckpt_probe *probe, const char *name, ckpt_error *err) {
  char path[PATH_MAX];
  struct stat found;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", probe->path, name) >= sizeof path) return CKPT_OK;
  if (lstat(path, &found) != 0 || !S_ISLNK(found.st_mode)) return CKPT_OK;
  int fd = ckpt_contained_open(root, name, O_PATH);
  if (fd < 0) return ckpt_fail_open(err, path, -fd);
  close(fd);
  return CKPT_OK;
}

/* Lists a file whose content has a name. */
static void look_at(const ckpt_root *root, const ckpt_entry *entry, listed *weights, const char **remedy) {
  uint8_t head[HEAD_BYTES];
  int fd = ckpt_contained_open(root, entry->name, 0);
  if (fd < 0) return;
  ssize_t n = pread(fd, head, sizeof head, 0);
  close(fd);
  ckpt_content content = n <= 0 ? (ckpt_content){0} : ckpt_content_of(head, (size_t)n);
  if (!content.is_weights) return;
  if (content.remedy != NULL) *remedy = content.remedy;
  add(weights, entry->name, content.name);
}

ckpt_status ckpt_refuse_folder(const ckpt_probe *probe, ckpt_error *err) {
  ckpt_root root = {-1, NULL};
  listed weights = {.n = 0}, names = {.n = 0};
  size_t n_looked_at = 0;
  const char *remedy = NULL, *staged = NULL;
  bool is_own = false;
  for (size_t i = 0; i < probe->n_entries; i++)
    CKPT_TRY(ckpt_temporary_explain_entry(probe->path, probe->entries[i].name, err));
  CKPT_TRY(ckpt_root_open(&root, probe->path, err));
  for (size_t i = 0; i < probe->n_entries; i++) {
    const ckpt_entry *entry = &probe->entries[i];
    const bool is_stage = ckpt_temporary_is_stage(entry->name);
    if (entry->name[0] != '.') add(&names, entry->name, NULL);
    if (entry->is_folder && is_stage && !is_own) {
      staged = entry->name;
      is_own = ckpt_temporary_is_of(probe->path, staged);
    }
    if (entry->is_file && !is_stage && n_looked_at++ < MAX_LOOKED_AT) look_at(&root, entry, &weights, &remedy);
  }
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < probe->n_entries && weights.n == 0 && status == CKPT_OK; i++)
    if (!probe->entries[i].is_file && !probe->entries[i].is_folder &&
        ckpt_names_weights(probe->entries[i].name, strlen(probe->entries[i].name)))
      status = check_link(&root, probe, probe->entries[i].name, err);
  ckpt_root_close(&root);
  if (status != CKPT_OK) return status;
  if (is_own && names.n != 0) /* these are the entries that were renamed into their places */
    return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL,
                     "is no checkpoint yet; other files of it are in '%s', of a run that was interrupted or is still "
                     "writing",
                     staged);
  if (weights.n != 0) return refuse_content(probe->path, finish(&weights), remedy, err);
  if (probe->n_entries == 0) return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL, "the folder is empty");
  if (names.n == 0 && staged != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL,
                     "holds no checkpoint, only %s of a run that was interrupted or is still writing (run it again)",
                     staged);
  for (size_t i = 0; i < probe->n_entries; i++)
    if (probe->entries[i].is_file && strcmp(probe->entries[i].name, "config.json") == 0)
      return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL,
                       "holds config.json, and no weights of a known format (fetch those too: names and shapes come "
                       "from them, also where it is there only to be compared with)");
  return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL, "holds no checkpoint of a known format (%s)",
                   names.n == 0 ? "only dot files" : finish(&names));
}
