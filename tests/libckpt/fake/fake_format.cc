// The format of the tests: see fake_format.h. index.txt is lines of words, names and texts in hex.
#include "tests/libckpt/fake/fake_format.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

extern "C" {
#include "libckpt/base/error.h"
}

namespace fake {

uint64_t first_seed() {
  const char *text = getenv("CKPT_TEST_SEED");
  return text == nullptr ? 1 : strtoull(text, nullptr, 10);
}

uint64_t n_cases(uint64_t usually) {
  const char *full = getenv("CKPT_TEST_FULL");
  return full == nullptr || *full == '\0' || *full == '0' ? usually : 20 * usually;
}

std::string text_of(const ckpt_error &err) {
  char text[2048];
  return ckpt_error_text(&err, text, sizeof text);
}

ckpt_dtype random_dtype(Random *random) { return static_cast<ckpt_dtype>(random->between(CKPT_BOOL, CKPT_C128)); }

std::vector<uint8_t> read_all(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::vector<uint8_t> bytes(tensor->n_bytes);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  return bytes;
}

// ---- objects as text: one token per node, children behind it
// -----------------------------------------------------------

static std::string hex(const std::string &text) {
  std::string out = "x";
  char digits[3];
  for (unsigned char byte : text) snprintf(digits, sizeof digits, "%02x", byte), out += digits;
  return out;
}

static std::string unhex(const std::string &text) {
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<char>(strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  return out;
}

static void print_object(std::ostream &out, const ckpt_object *o) {
  out << ' ' << o->kind << ' ' << o->n << ' ';
  switch (o->kind) {
    case CKPT_OBJECT_BOOL: out << o->boolean; break;
    case CKPT_OBJECT_INT: out << o->integer; break;
    case CKPT_OBJECT_TENSOR: out << o->tensor; break;
    case CKPT_OBJECT_FLOAT: {
      char text[64];
      snprintf(text, sizeof text, "%a", o->number);
      out << text;
      break;
    }
    case CKPT_OBJECT_TEXT: out << hex(std::string(o->text, o->n)); break;
    case CKPT_OBJECT_BYTES: out << hex(std::string(reinterpret_cast<const char *>(o->bytes), o->n)); break;
    case CKPT_OBJECT_LIST:
    case CKPT_OBJECT_TUPLE:
      for (uint64_t i = 0; i < o->n; i++) print_object(out, o->items[i]);
      break;
    case CKPT_OBJECT_DICT:
      for (uint64_t i = 0; i < 2 * o->n; i++) print_object(out, o->items[i]);
      break;
    default: break;
  }
}

static ckpt_object *parse_object(std::istream &in, ckpt_arena *arena) {
  int kind;
  uint64_t n;
  std::string text;
  if (!(in >> kind >> n)) return nullptr;
  switch (kind) {
    case CKPT_OBJECT_NONE: return ckpt_object_none(arena);
    case CKPT_OBJECT_BOOL: return in >> text, ckpt_object_bool(arena, text == "1");
    case CKPT_OBJECT_INT: return in >> text, ckpt_object_int(arena, strtoll(text.c_str(), nullptr, 10));
    case CKPT_OBJECT_TENSOR:
      return in >> text, ckpt_object_tensor(arena, static_cast<uint32_t>(strtoul(text.c_str(), nullptr, 10)));
    case CKPT_OBJECT_FLOAT: return in >> text, ckpt_object_float(arena, strtod(text.c_str(), nullptr));
    case CKPT_OBJECT_TEXT: return in >> text, ckpt_object_text(arena, unhex(text).data(), n);
    case CKPT_OBJECT_BYTES: return in >> text, ckpt_object_bytes(arena, unhex(text).data(), n);
    default: break;
  }
  uint64_t n_items = kind == CKPT_OBJECT_DICT ? 2 * n : n;
  ckpt_object *list = ckpt_object_new(arena, static_cast<ckpt_object_kind>(kind), n, nullptr);
  for (uint64_t i = 0; list != nullptr && i < n_items; i++) list->items[i] = parse_object(in, arena);
  return list;
}

// ---- layout ---------------------------------------------------------------------------------------------------------

static uint32_t rank_of(const ckpt_tensor *tensor, uint64_t *units) { return ckpt_tensor_units(tensor, units); }

static void print_header(const ckpt_layout *, const void *arg, ckpt_stream *out) {
  ckpt_stream_printf(out, "FAKE part %s\n", static_cast<const char *>(arg));
}

static void print_end(const ckpt_layout *, const void *, ckpt_stream *out) { ckpt_stream_text(out, "END\n"); }

// The checksum of the tensor before the segment that arg names, as a zip's descriptor has it.
struct Place {
  uint32_t file, segment;
};

static void print_crc(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const Place *place = static_cast<const Place *>(arg);
  ckpt_stream_printf(out, "<%08x>", layout->files[place->file].segments[place->segment].crc32);
}

// The checksums of the file whose number is at arg.
static void print_crcs(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const ckpt_layout_file *file = &layout->files[*static_cast<const uint32_t *>(arg)];
  ckpt_stream_text(out, "crc");
  for (uint32_t s = 0; s < file->n_segments; s++)
    if (file->segments[s].checksum == CKPT_CHECKSUM_CRC32) ckpt_stream_printf(out, " %08x", file->segments[s].crc32);
  ckpt_stream_text(out, "\n");
}

static void print_segments(const ckpt_layout *layout, uint32_t tensor, std::ostream &text) {
  const ckpt_tensor *t = &layout->index->tensors[tensor];
  uint64_t units[CKPT_MAX_RANK], none[2 * CKPT_MAX_RANK] = {};
  uint32_t rank = rank_of(t, units);
  std::copy(units, units + rank, none + rank);
  for (uint32_t f = 0; f < layout->n_files; f++) {
    uint64_t skip = 0, n_raw = 0;
    for (uint32_t s = 0; s < layout->files[f].n_segments; s++) {
      const ckpt_segment *segment = &layout->files[f].segments[s];
      skip = segment->is_joined ? skip + n_raw : 0;
      n_raw = segment->n_raw;
      if (segment->kind != CKPT_SEGMENT_TENSOR || segment->tensor != tensor) continue;
      text << "extent " << hex(layout->files[f].name) << ' ' << segment->offset << ' ' << segment->n_bytes << ' '
           << segment->n_raw << ' ' << skip << ' ' << segment->encoder << ' ' << segment->checksum << ' '
           << segment->crc32;
      for (uint32_t i = 0; i < 2 * rank; i++) text << ' ' << (segment->box != nullptr ? segment->box : none)[i];
      text << '\n';
    }
  }
}

static void print_index(const ckpt_layout *layout, const void *, ckpt_stream *out) {
  std::ostringstream text;
  const ckpt_index *index = layout->index;
  text << "FAKE1\n";
  for (uint32_t i = 0; i < index->n_metadata; i++)
    text << "meta " << hex(index->metadata[i].key) << ' ' << hex(index->metadata[i].value) << '\n';
  for (uint32_t f = 0; f + 1 < layout->n_files; f++)
    text << "file " << hex(layout->files[f].name) << ' ' << layout->files[f].n_bytes << '\n';
  for (uint32_t i = 0; i < index->n_side_files; i++) text << "side " << hex(index->side_files[i].name) << '\n';
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *t = &index->tensors[i];
    text << "tensor " << hex(t->name) << ' ' << int(t->role) << ' ' << int(t->dtype) << ' ' << int(t->rank);
    for (uint32_t axis = 0; axis < t->rank; axis++) text << ' ' << t->shape[axis];
    text << '\n';
    for (const char *const *alias = t->aliases; alias != nullptr && *alias != nullptr; alias++)
      text << "alias " << hex(*alias) << '\n';
    print_segments(layout, i, text);
  }
  if (index->objects != nullptr) text << "objects", print_object(text, index->objects), text << '\n';
  ckpt_stream_text(out, text.str().c_str());
}

// The part of an axis that belongs to rank k of n: as evenly as can be, larger parts first; maybe nothing.
static void part_of(uint64_t extent, uint32_t k, uint32_t n, uint64_t *start, uint64_t *count) {
  uint64_t size = (extent + n - 1) / n;
  *start = std::min(extent, k * size);
  *count = std::min(size, extent - *start);
}

// The box of a tensor that part k of `world` holds: W parts of one axis, or a grid where it has two and W is even.
static uint64_t *box_of(ckpt_layout *layout, const ckpt_tensor *tensor, uint32_t k, uint32_t world) {
  uint64_t units[CKPT_MAX_RANK];
  uint32_t rank = rank_of(tensor, units);
  uint64_t *box = static_cast<uint64_t *>(ckpt_arena_array(layout->arena, 2 * rank, sizeof *box));
  std::copy(units, units + rank, box + rank);
  uint32_t n_columns = rank > 1 && world % 2 == 0 ? 2 : 1;
  part_of(units[0], k / n_columns, world / n_columns, &box[0], &box[rank]);
  if (n_columns > 1) part_of(units[rank - 1], k % n_columns, n_columns, &box[rank - 1], &box[2 * rank - 1]);
  return box;
}

const ckpt_format_option kLevel = {"zstd_level", CKPT_VALUE_NUMBER, 1,      22, 0, nullptr, nullptr, false,
                                   false,        nullptr,           nullptr};

static int level_of(const ckpt_layout_options *options) {
  return static_cast<int>(ckpt_format_value_of(&options->values, &kLevel));
}

enum class Way { kWhole, kBoxes, kEncoded };

static Way way_of(const ckpt_layout *layout, uint32_t i, const ckpt_layout_options *options) {
  if (i % 3 == 1 && layout->index->tensors[i].n_elements != 0) return Way::kBoxes;
  return i % 3 == 2 && level_of(options) != 0 ? Way::kEncoded : Way::kWhole;
}

static ckpt_status lay_part(ckpt_layout *layout, uint32_t k, uint32_t world, const ckpt_layout_options *options,
                            ckpt_error *err) {
  bool is_encoded = k == world;
  char *name = ckpt_arena_printf(layout->arena, "part-%u.bin", k);
  uint32_t *number = static_cast<uint32_t *>(ckpt_arena_alloc(layout->arena, sizeof *number));
  *number = layout->n_files;
  CKPT_TRY(ckpt_layout_file_add(layout, is_encoded ? "z.bin" : name, err));
  layout->files[*number].rank = is_encoded ? 1 : k;
  CKPT_TRY(ckpt_layout_literal(layout, print_header, is_encoded ? "z" : name + 5, err));
  for (uint32_t n = 0; n < layout->index->n_tensors; n++) {
    uint32_t i = layout->index->n_tensors - 1 - n;  // not in the order of names
    Way way = way_of(layout, i, options);
    if (way == Way::kEncoded ? !is_encoded : is_encoded || (way == Way::kWhole && i % world != k)) continue;
    // boxes: part 0 holds the last one, so that extents are not in the order of boxes
    uint64_t *box = way == Way::kBoxes ? box_of(layout, &layout->index->tensors[i], world - 1 - k, world) : nullptr;
    uint32_t n_before = layout->files[*number].n_segments;
    CKPT_TRY(ckpt_layout_zeros(layout, (i * 7) % 13, err));
    bool is_frame = way == Way::kEncoded || (way == Way::kBoxes && level_of(options) != 0 && k % 2 == 1);
    ckpt_checksum checksum = i % 5 == 4 ? CKPT_CHECKSUM_NONE : CKPT_CHECKSUM_CRC32;
    CKPT_TRY(ckpt_layout_tensor(layout, i, box, checksum, err));
    if (is_frame && i % 4 < 2) ckpt_layout_frame(layout, 1, level_of(options));
    Place *place = static_cast<Place *>(ckpt_arena_alloc(layout->arena, sizeof *place));
    *place = {*number, layout->files[*number].n_segments - 1};
    if (i % 2 == 0) CKPT_TRY(ckpt_layout_trailer(layout, print_crc, place, err));
    if (is_frame && i % 4 >= 2)
      ckpt_layout_frame(layout, layout->files[*number].n_segments - n_before, level_of(options));
  }
  CKPT_TRY(ckpt_layout_footer(layout, print_crcs, number, err));
  return ckpt_layout_literal(layout, print_end, nullptr, err);
}

static ckpt_status lay(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  uint32_t world = options->world == 0 ? 1 : options->world;
  for (uint32_t k = 0; k < world + (level_of(options) != 0 ? 1 : 0); k++)
    CKPT_TRY(lay_part(layout, k, world, options, err));
  for (uint32_t i = 0; i < layout->index->n_side_files; i++) {
    CKPT_TRY(ckpt_layout_file_add(layout, layout->index->side_files[i].name, err));
    CKPT_TRY(ckpt_layout_side_file(layout, &layout->index->side_files[i], err));
  }
  CKPT_TRY(ckpt_layout_file_add(layout, "index.txt", err));
  return ckpt_layout_footer(layout, print_index, nullptr, err);
}

// ---- normalize and open
// -----------------------------------------------------------------------------------------------

static ckpt_status normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    if (strncmp(tensor->name, "drop.", 5) == 0) {
      CKPT_TRY(ckpt_losses_add(losses, err, "%s", tensor->name));
      continue;
    }
    if (strncmp(tensor->name, "narrow.", 7) == 0 && tensor->dtype == CKPT_F64) {
      tensor->dtype = CKPT_F32;
      tensor->n_bytes /= 2;
    }
    described->tensors[n++] = *tensor;
  }
  described->n_tensors = n;
  return CKPT_OK;
}

static uint32_t file_number(const ckpt_source *source, const std::string &name) {
  for (uint32_t i = 0; i < ckpt_source_count(source); i++)
    if (name == ckpt_source_name(source, i)) return i;
  return UINT32_MAX;
}

struct Parsed {
  std::string name;
  int role = 0, dtype = 0;
  Shape shape;
  std::vector<ckpt_extent> extents;
  std::vector<std::string> aliases;
  bool is_boxed = false;
};

static ckpt_status add_parsed(ckpt_index *index, const Parsed &t, ckpt_error *err) {
  if (t.name.empty()) return CKPT_OK;
  uint32_t number;
  CKPT_TRY(ckpt_index_add(index, t.name.data(), t.name.size(), static_cast<ckpt_dtype>(t.dtype),
                          static_cast<uint32_t>(t.shape.size()), t.shape.data(), static_cast<ckpt_role>(t.role),
                          t.extents.data(), static_cast<uint32_t>(t.extents.size()), &number, err));
  index->tensors[number].details->extent_form = CKPT_EXTENT_BOX;
  for (const std::string &alias : t.aliases) CKPT_TRY(ckpt_index_alias(index, number, alias.c_str(), err));
  return CKPT_OK;
}

static ckpt_status parse_extent(ckpt_index *index, std::istream &in, Parsed *t, ckpt_error *err) {
  std::string file;
  ckpt_extent extent = {};
  uint64_t n_raw, crc;
  int encoder, checksum;
  in >> file >> extent.offset >> extent.n_stored >> n_raw >> extent.skip >> encoder >> checksum >> crc;
  extent.file = file_number(index->source, unhex(file));
  if (extent.file == UINT32_MAX) return ckpt_fail(err, CKPT_EFORMAT, nullptr, nullptr, "no file %s", file.c_str());
  if (encoder == CKPT_ENCODE_ZSTD) extent.chain[0] = CKPT_DECODE_ZSTD;
  std::vector<uint64_t> box;
  for (uint64_t value; in >> value;) box.push_back(value);
  uint64_t *copy = static_cast<uint64_t *>(ckpt_arena_array(&index->arena, box.size(), sizeof *copy));
  std::copy(box.begin(), box.end(), copy);
  extent.box = copy;
  t->extents.push_back(extent);
  return CKPT_OK;
}

static ckpt_status parse(ckpt_index *index, const std::string &text, ckpt_error *err) {
  std::istringstream lines(text);
  Parsed tensor;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string word, a, b;
    in >> word;
    if (word == "meta" && in >> a >> b)
      CKPT_TRY(ckpt_index_set_metadata(index, unhex(a).c_str(), unhex(b).c_str(), err));
    if (word == "side" && in >> a) {
      uint32_t file = file_number(index->source, unhex(a));
      CKPT_TRY(ckpt_index_add_side_file(index, unhex(a).c_str(), file, ckpt_source_size(index->source, file), err));
    }
    if (word == "file" && in >> a >> b &&
        std::to_string(ckpt_source_size(index->source, file_number(index->source, unhex(a)))) != b)
      return ckpt_fail(err, CKPT_EFORMAT, nullptr, nullptr, "%s has not %s bytes", a.c_str(), b.c_str());
    if (word == "objects") index->objects = parse_object(in, &index->arena);
    if (word == "alias" && in >> a) tensor.aliases.push_back(unhex(a));
    if (word == "extent") CKPT_TRY(parse_extent(index, in, &tensor, err));
    if (word != "tensor") continue;
    CKPT_TRY(add_parsed(index, tensor, err));
    tensor = Parsed();
    uint32_t rank;
    in >> a >> tensor.role >> tensor.dtype >> rank;
    tensor.name = unhex(a);
    tensor.shape.resize(rank);
    for (auto &extent : tensor.shape) in >> extent;
  }
  return add_parsed(index, tensor, err);
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *, const char *, const ckpt_open_options *,
                              ckpt_error *err) {
  uint32_t file = file_number(index->source, "index.txt");
  std::string text(file == UINT32_MAX ? 0 : ckpt_source_size(index->source, file), '\0');
  ckpt_status status = ckpt_source_read(index->source, file, 0, &text[0], text.size(), err);
  if (status == CKPT_OK) status = parse(index, text, err);
  return status == CKPT_OK ? ckpt_index_finish(index, err) : status;
}

static ckpt_format make_format() {
  ckpt_format row = {};
  row.name = "fake";
  row.suffixes = ".fake";
  row.caps.can_write = row.caps.is_folder = row.caps.aliases = row.caps.objects = true;
  row.caps.training_state = row.caps.side_files = true;
  row.caps.dtypes = UINT64_MAX;
  row.caps.max_rank = CKPT_MAX_RANK;
  row.read = read_index;
  row.normalize = normalize;
  row.layout = lay;
  return row;
}

const ckpt_format format = make_format();

IndexPointer open_fake(const std::map<std::string, std::string> &files, ckpt_error *err) {
  ckpt_index *index = nullptr;
  ckpt_source *source = memory_source({files.begin(), files.end()});
  EXPECT_EQ(ckpt_index_new(&index, source, "fake", "fake", nullptr, err), CKPT_OK);
  IndexPointer opened(index, ckpt_index_free);
  if (format.read(index, nullptr, nullptr, nullptr, err) != CKPT_OK) opened.reset();
  return opened;
}

// ---- checks
// -----------------------------------------------------------------------------------------------------------

std::string check_checksums(const std::map<std::string, std::string> &files) {
  std::istringstream lines(files.at("index.txt"));
  uint64_t n_tensors = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string word, file;
    uint64_t offset, n_bytes, n_raw, skip, encoder, checksum, crc;
    if (!(in >> word)) continue;
    n_tensors += word == "tensor";
    if (word != "extent") continue;
    in >> file >> offset >> n_bytes >> n_raw >> skip >> encoder >> checksum >> crc;
    std::string bytes = files.at(unhex(file)).substr(offset, n_bytes);
    std::string behind = files.at(unhex(file)).substr(offset + n_bytes, 10);
    if (encoder == CKPT_ENCODE_ZSTD) {
      std::string raw(ZSTD_getFrameContentSize(bytes.data(), bytes.size()), '\0');
      if (ZSTD_decompress(&raw[0], raw.size(), bytes.data(), bytes.size()) != raw.size() || raw.size() < skip + n_raw)
        return line + ": no zstd frame of it";
      if (raw.size() > skip + n_raw) behind = raw.substr(skip + n_raw);
      if (raw.substr(0, skip).find_first_not_of('\0') != std::string::npos) return line + ": no zeros before it";
      bytes = raw.substr(skip, n_raw);
    }
    char trailer[11];
    snprintf(trailer, sizeof trailer, "<%08x>", static_cast<unsigned>(crc));
    if (n_tensors % 2 == 1 && behind != trailer) return line + ": no trailer " + trailer;
    if (bytes.size() != n_raw) return line + ": cut off";
    uint64_t wanted = crc32_z(0, reinterpret_cast<const Bytef *>(bytes.data()), bytes.size());
    if (checksum == CKPT_CHECKSUM_CRC32 && crc != wanted) return line + ": crc32 is " + std::to_string(wanted);
  }
  for (const auto &file : files) {
    bool is_part = file.first.rfind("part-", 0) == 0 || file.first == "z.bin";
    if (!is_part) continue;
    if (file.second.rfind("FAKE part ", 0) != 0) return file.first + " has no header";
    if (file.second.size() < 4 || file.second.substr(file.second.size() - 4) != "END\n")
      return file.first + " has no end";
  }
  return "";
}

uint32_t add_output(ckpt_plan *plan, MemorySink *into, const ckpt_format *row, uint32_t world, int zstd_level,
                    Faults *faults) {
  ckpt_layout_options options = {};
  options.world = world;
  static const std::vector<ckpt_format_value> levels = [] {
    std::vector<ckpt_format_value> made;
    for (uint64_t level = 0; level <= 22; level++) made.push_back({"zstd_level", level, nullptr, nullptr});
    return made;
  }();
  options.values = {&levels[static_cast<size_t>(zstd_level)], 1};
  options.is_folder = row->caps.is_folder;
  uint32_t number = UINT32_MAX;
  EXPECT_EQ(ckpt_plan_output_sink(plan, counting_sink(into, faults), row, &options, &number, nullptr), CKPT_OK);
  return number;
}

static std::string aliases_of(const ckpt_tensor *tensor) {
  std::string text;
  for (const char *const *alias = tensor->aliases; alias != nullptr && *alias != nullptr; alias++)
    text += std::string(*alias) + " ";
  return text;
}

static std::string side_bytes(const ckpt_index *index, const ckpt_side_file *side) {
  if (side->text != nullptr) return std::string(side->text, side->n_bytes);
  std::string bytes(side->n_bytes, '\0');
  EXPECT_EQ(ckpt_source_read(index->source, side->file, 0, &bytes[0], bytes.size(), nullptr), CKPT_OK);
  return bytes;
}

std::string difference(const ckpt_index *a, const ckpt_index *b) {
  if (ckpt_index_count(a) != ckpt_index_count(b)) return "number of tensors";
  for (size_t i = 0; i < ckpt_index_count(a); i++) {
    const ckpt_tensor *x = ckpt_index_at(a, i), *y = ckpt_index_at(b, i);
    std::string name = x->name;
    if (name != y->name) return name + " against " + y->name;
    if (x->dtype != y->dtype || x->rank != y->rank || x->role != y->role) return name + ": dtype, rank or role";
    for (uint32_t axis = 0; axis < x->rank; axis++)
      if (x->shape[axis] != y->shape[axis]) return name + ": shape";
    if (aliases_of(x) != aliases_of(y)) return name + ": aliases " + aliases_of(x) + "against " + aliases_of(y);
    if (read_all(a, x) != read_all(b, y)) return name + ": bytes";
  }
  if (a->n_metadata != b->n_metadata || a->n_side_files != b->n_side_files) return "number of metadata or side files";
  for (uint32_t i = 0; i < a->n_metadata; i++) {
    const char *value = ckpt_index_metadata(b, a->metadata[i].key);
    if (value == nullptr || strcmp(value, a->metadata[i].value) != 0)
      return std::string("metadata ") + a->metadata[i].key;
  }
  for (uint32_t i = 0; i < a->n_side_files; i++) {
    const ckpt_side_file *side = ckpt_index_side_file(b, a->side_files[i].name);
    if (side == nullptr || side_bytes(b, side) != side_bytes(a, &a->side_files[i])) return "side files";
  }
  if ((a->objects == nullptr) != (b->objects == nullptr)) return "objects";
  if (a->objects != nullptr && !ckpt_object_equal(a->objects, b->objects)) return "objects";
  return "";
}

}  // namespace fake
