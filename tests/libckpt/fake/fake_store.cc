// Storing arrays in every way: see fake_store.h.
#include "tests/libckpt/fake/fake_store.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

extern "C" {
#include "libckpt/base/error.h"
}

namespace fake {

// ---- sources and sinks ----------------------------------------------------------------------------------------------

struct SourceContext {
  std::vector<std::string> files;
  Faults *faults;
};

static ckpt_status source_read(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  SourceContext *source = static_cast<SourceContext *>(ctx);
  if (source->faults != nullptr && source->faults->next_fails())
    return ckpt_fail(err, CKPT_EIO, nullptr, nullptr, "planted read failure");
  if (n_bytes != 0) memcpy(dst, source->files[file].data() + offset, n_bytes);
  return CKPT_OK;
}

static void source_close(void *ctx) { delete static_cast<SourceContext *>(ctx); }

static const ckpt_source_ops source_ops = {source_read, source_close};

ckpt_source *memory_source(const std::vector<std::pair<std::string, std::string>> &files, Faults *faults) {
  SourceContext *context = new SourceContext{{}, faults};
  for (const auto &file : files) context->files.push_back(file.second);
  ckpt_source *source = nullptr;
  if (ckpt_source_custom(&source, &source_ops, context, nullptr) != CKPT_OK) return nullptr;
  uint32_t number;
  for (const auto &file : files)
    if (ckpt_source_declare(source, file.first.c_str(), file.second.size(), &number, nullptr) != CKPT_OK)
      return nullptr;
  return source;
}

static ckpt_status sink_fault(MemorySink *sink, ckpt_error *err) {
  return sink->faults != nullptr && sink->faults->next_fails()
             ? ckpt_fail(err, CKPT_EIO, nullptr, nullptr, "planted write failure")
             : CKPT_OK;
}

static ckpt_status sink_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  for (uint32_t i = 0; i < n_files; i++) {
    sink->names.push_back(files[i].name == nullptr ? "" : files[i].name);
    sink->files[sink->names.back()].resize(files[i].n_bytes == CKPT_SIZE_UNKNOWN ? 0 : files[i].n_bytes);
  }
  return sink_fault(sink, err);
}

static ckpt_status sink_share(void *ctx, char *token, ckpt_error *err) {
  snprintf(token, CKPT_TOKEN_BYTES, "%p", ctx);
  return sink_fault(static_cast<MemorySink *>(ctx), err);
}

static ckpt_status sink_join(void *ctx, const ckpt_sink_file *, uint32_t n_files, const char *token, ckpt_error *err) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  char wanted[CKPT_TOKEN_BYTES];
  snprintf(wanted, sizeof wanted, "%p", ctx);
  if (strcmp(token, wanted) != 0 || n_files != sink->names.size())
    return ckpt_fail(err, CKPT_EINTERNAL, nullptr, nullptr, "joins %s, not %s", token, wanted);
  sink->n_joined++;
  return sink_fault(sink, err);
}

static ckpt_status sink_write(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                              ckpt_error *err) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  std::lock_guard<std::mutex> lock(sink->mutex);
  std::string &bytes = sink->files[sink->names[file]];
  if (bytes.size() < offset + n_bytes) bytes.resize(offset + n_bytes);
  if (n_bytes != 0) memcpy(&bytes[offset], src, n_bytes);
  return sink_fault(sink, err);
}

static ckpt_status sink_read(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  std::lock_guard<std::mutex> lock(sink->mutex);
  const std::string &bytes = sink->files[sink->names[file]];
  if (offset > bytes.size() || n_bytes > bytes.size() - offset)
    return ckpt_fail(err, CKPT_EIO, nullptr, nullptr, "reads back what was never written");
  if (n_bytes != 0) memcpy(dst, bytes.data() + offset, n_bytes);
  return sink_fault(sink, err);
}

static ckpt_status sink_seal(void *ctx, ckpt_error *err) { return sink_fault(static_cast<MemorySink *>(ctx), err); }

static ckpt_status sink_publish(void *ctx, ckpt_error *err) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  CKPT_TRY(sink_fault(sink, err));
  sink->is_published = true;
  return CKPT_OK;
}

static void sink_abandon(void *ctx) { static_cast<MemorySink *>(ctx)->is_abandoned = true; }

static void sink_close(void *ctx) {
  MemorySink *sink = static_cast<MemorySink *>(ctx);
  sink->is_closed = true;
}

static ckpt_sink_ops make_sink_ops() {
  ckpt_sink_ops ops = {};
  ops.open = sink_open;
  ops.write_at = sink_write;
  ops.read_at = sink_read;
  ops.seal = sink_seal;
  ops.publish = sink_publish;
  ops.abandon = sink_abandon;
  ops.close = sink_close;
  ops.share = sink_share;
  ops.join = sink_join;
  return ops;
}

ckpt_sink *counting_sink(MemorySink *into, Faults *faults) {
  static const ckpt_sink_ops ops = make_sink_ops();
  into->faults = faults;
  ckpt_sink *sink = nullptr;
  return ckpt_sink_custom(&sink, &ops, into, nullptr) == CKPT_OK ? sink : nullptr;
}

// ---- encoding -------------------------------------------------------------------------------------------------------

static std::string deflated(const std::vector<uint8_t> &bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = const_cast<uint8_t *>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef *>(&out[0]);
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

static std::string zstd(const uint8_t *bytes, size_t n) {
  std::string out(ZSTD_compressBound(n), '\0');
  out.resize(ZSTD_compress(&out[0], out.size(), bytes, n, 1));
  return out;
}

static std::string varints(const std::vector<uint8_t> &bytes, uint32_t unit_bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += unit_bytes) {
    uint64_t value = 0;
    memcpy(&value, &bytes[i], unit_bytes);
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  }
  return out;
}

std::string torch_archive(const std::string &record, TorchOptions options) {
  std::string out, directory;
  uint16_t n_entries = 0;
  auto add = [](std::string *to, uint64_t value, int n) {
    for (int i = 0; i < n; i++) to->push_back(static_cast<char>(i < 8 ? value >> 8 * i : 0));
  };
  auto write = [&](const std::string &name, const std::string &bytes, bool deflate) {
    uint64_t at = out.size(), flags = bytes.empty() || options.deflates ? 0x800 : 0x808;
    std::string stored = deflate ? deflated({bytes.begin(), bytes.end()}) : bytes;
    uint32_t crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef *>(bytes.data()), static_cast<uInt>(bytes.size())));
    std::string common;
    add(&common, flags, 2), add(&common, deflate ? 8 : 0, 2), add(&common, 0, 4);
    std::string local = common, sizes;
    add(&sizes, crc, 4), add(&sizes, stored.size(), 4), add(&sizes, bytes.size(), 4);
    out += std::string("PK\3\4\0\0", 6) + local + (flags & 8 ? std::string(12, '\0') : sizes);
    size_t n_pad = (64 - (at + 30 + name.size() + 4) % 64) % 64;
    add(&out, name.size(), 2), add(&out, n_pad + 4, 2);
    out += name + "FB";
    add(&out, n_pad, 2);
    out += std::string(n_pad, 'Z') + stored;
    if (flags & 8) out += std::string("PK\7\10", 4) + sizes;
    directory += std::string("PK\1\2\0\0\0\0", 8) + common + sizes;
    add(&directory, name.size(), 2), add(&directory, 0, 12), add(&directory, at, 4);
    directory += name;
    n_entries++;
  };
  // torch._utils._rebuild_tensor_v2(storage, 0, (n,), (1,), False, {}), the storage's persistent id being "0"
  std::string n(4, '\0');
  for (size_t i = 0; i < 4; i++) n[i] = static_cast<char>(record.size() >> (8 * i));
  const std::string usual = "ctorch._utils\n_rebuild_tensor_v2\n(P0\nI0\nJ" + n + "\x85K\x01\x85\x89}tR.";
  const std::string pickle = options.pickle.empty() ? usual : options.pickle;
  if (!options.pickle_behind) write("archive/data.pkl", pickle, false);
  if (!options.byteorder.empty()) write("archive/byteorder", options.byteorder, false);
  for (int i = 0; i < options.n_records; i++) write("archive/data/" + std::to_string(i), record, options.deflates);
  if (options.pickle_behind) write("archive/data.pkl", pickle, false);
  write("archive/version", "3\n", options.deflates);
  write("archive/.data/serialization_id", std::string(40, '7'), options.deflates);
  size_t at = out.size();
  out += directory + std::string("PK\5\6\0\0\0\0", 8);
  add(&out, n_entries, 2), add(&out, n_entries, 2), add(&out, directory.size(), 4), add(&out, at, 4), add(&out, 0, 2);
  return out;
}

static void turn(std::vector<uint8_t> *bytes, uint32_t n) {
  for (size_t i = 0; i + n <= bytes->size(); i += n)
    std::reverse(bytes->begin() + static_cast<ptrdiff_t>(i), bytes->begin() + static_cast<ptrdiff_t>(i + n));
}

ckpt_extent Store::store(std::vector<uint8_t> bytes, uint32_t unit_bytes, ckpt_dtype dtype, bool sequential) {
  ckpt_extent extent = {};
  bool is_complex = ckpt_dtype_get(dtype)->kind == CKPT_KIND_COMPLEX;
  uint64_t choice = random_->below(sequential ? 12 : 4);
  if (!sequential && choice == 3) choice = 8;
  extent.skip = random_->chance(30) ? random_->between(1, 5) * unit_bytes : 0;
  std::vector<uint8_t> plain(extent.skip);
  for (auto &byte : plain) byte = static_cast<uint8_t>(random_->bits());
  plain.insert(plain.end(), bytes.begin(), bytes.end());
  if (choice == 6 && (unit_bytes > 8 || is_complex)) choice = 0;
  bool swapped = choice == 2 || choice == 7 || choice == 9;
  if (swapped) turn(&plain, is_complex ? unit_bytes / 2 : unit_bytes);
  std::string encoded(plain.begin(), plain.end());
  int n = 0;
  if (choice == 3 || choice == 7) {
    encoded = deflated(plain);
    extent.chain[n++] = CKPT_DECODE_INFLATE;
  } else if (choice == 4 || choice == 5) {
    size_t half = choice == 4 ? plain.size() : plain.size() / 2;  // two frames follow each other
    encoded = zstd(plain.data(), half) + (choice == 5 ? zstd(plain.data() + half, plain.size() - half) : "");
    extent.chain[n++] = CKPT_DECODE_ZSTD;
  } else if (choice == 6) {
    encoded = varints(plain, unit_bytes);
    extent.chain[n++] = CKPT_DECODE_VARINT;
  } else if (choice >= 8) {  // stored, big-endian, deflated, or compressed as a whole
    TorchOptions options;
    options.byteorder = swapped ? "big" : random_->chance(80) ? "little" : "";
    options.deflates = choice == 10;
    encoded = torch_archive(encoded, options);
    if (choice == 11) {
      encoded = zstd(reinterpret_cast<const uint8_t *>(encoded.data()), encoded.size());
      extent.chain[n++] = CKPT_DECODE_ZSTD;
    }
    extent.chain[n++] = CKPT_DECODE_RECORD;
  }
  if (swapped && choice < 8) extent.chain[n++] = CKPT_DECODE_SWAPPED;
  extent.file = static_cast<uint32_t>(random_->below(files_.size()));
  std::string &file = files_[extent.file];
  file.append(random_->below(9), '\xEE');
  extent.offset = file.size();
  extent.n_stored = encoded.size();
  file += encoded;
  return extent;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

Stored &Store::add(const std::string &name, Array array, bool sequential) {
  uint64_t choice = random_->below(4);
  Form form = choice < 2 ? Form::kFlat : choice == 2 ? Form::kBoxes : Form::kStrided;
  return add(name, std::move(array), form, sequential);
}

Stored &Store::add(const std::string &name, Array array, Form form, bool sequential) {
  tensors_.emplace_back();
  Stored &tensor = tensors_.back();
  tensor.name = name;
  tensor.array = std::move(array);
  tensor.form = form;
  if (form == Form::kFlat) add_flat(&tensor, sequential);
  if (form == Form::kBoxes) add_boxes(&tensor, sequential);
  if (form == Form::kStrided) add_strided(&tensor);
  return tensor;
}

Stored &Store::add_plain(const std::string &name, Array array) {
  tensors_.emplace_back();
  Stored &tensor = tensors_.back();
  tensor.name = name;
  ckpt_extent extent = {};
  extent.offset = files_[0].size();
  extent.n_stored = array.bytes.size();
  extent.count = array.bytes.size() / array.unit_bytes();
  files_[0].append(array.bytes.begin(), array.bytes.end());
  tensor.extents.push_back(extent);
  tensor.array = std::move(array);
  return tensor;
}

Stored &Store::add_columns(const std::string &name, Array array, uint64_t n_boxes) {
  tensors_.emplace_back();
  Stored &tensor = tensors_.back();
  tensor.name = name;
  tensor.form = Form::kBoxes;
  Shape units = array.units(), count = {units[0], units[1] / n_boxes};
  for (uint64_t i = 0; i < n_boxes; i++) {
    std::vector<uint8_t> bytes = take(array, {0, i * count[1]}, count, {0, 1});
    std::string encoded = zstd(bytes.data(), bytes.size());
    ckpt_extent extent = {};
    extent.offset = files_[0].size();
    extent.n_stored = encoded.size();
    extent.chain[0] = CKPT_DECODE_ZSTD;
    files_[0] += encoded;
    add_box(&tensor, {0, i * count[1]}, count, {}, extent);
  }
  tensor.array = std::move(array);
  return tensor;
}

void Store::add_flat(Stored *tensor, bool sequential) {
  uint32_t unit = tensor->array.unit_bytes();
  uint64_t n_units = tensor->array.bytes.size() / unit, at = 0;
  while (at < n_units) {
    uint64_t n = random_->chance(40) ? n_units - at : random_->between(1, n_units - at);
    auto begin = tensor->array.bytes.begin() + static_cast<ptrdiff_t>(at * unit);
    ckpt_extent extent = {};
    if (random_->chance(10)) {  // a literal: zeros, or the first unit again and again
      uint8_t value[8] = {};
      if (8 % unit == 0 && random_->chance(50))
        for (uint32_t i = 0; i < 8; i++) value[i] = begin[i % unit];
      for (uint64_t i = 0; i < n * unit; i++) begin[static_cast<ptrdiff_t>(i)] = value[i % 8];
      extent.file = CKPT_FILE_LITERAL;
      for (uint32_t i = 0; i < 8; i++) extent.offset |= static_cast<uint64_t>(value[i]) << 8 * i;
    } else {
      extent = store(std::vector<uint8_t>(begin, begin + static_cast<ptrdiff_t>(n * unit)), unit, tensor->array.dtype,
                     sequential);
    }
    extent.start = at, extent.count = n;
    tensor->extents.push_back(extent);
    if (random_->chance(10)) tensor->extents.push_back(extent);  // a replica
    at += n;
  }
  for (size_t i = tensor->extents.size(); i > 1; i--)
    std::swap(tensor->extents[i - 1], tensor->extents[random_->below(i)]);
}

void Store::add_box(Stored *tensor, const Shape &start, const Shape &count, const Shape &strides, ckpt_extent extent) {
  Shape box = start;
  box.insert(box.end(), count.begin(), count.end());
  box.insert(box.end(), strides.begin(), strides.end());
  tensor->boxes.push_back(boxes_.size());
  boxes_.push_back(box);
  tensor->extents.push_back(extent);
}

void Store::split(Stored *tensor, Shape start, Shape count, int depth, bool sequential) {
  size_t axis = random_->below(count.size());
  if (depth > 0 && random_->chance(80)) {
    uint64_t at = random_->between(0, count[axis]);  // uneven, sometimes empty
    Shape low = count, high = count, middle = start;
    low[axis] = at, high[axis] = count[axis] - at, middle[axis] += at;
    split(tensor, start, low, depth - 1, sequential);
    split(tensor, middle, high, depth - 1, sequential);
    return;
  }
  std::vector<uint32_t> order(count.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint32_t>(i);
  std::vector<uint8_t> bytes = take(tensor->array, start, count, order);
  add_box(tensor, start, count, {}, store(bytes, tensor->array.unit_bytes(), tensor->array.dtype, sequential));
  if (random_->chance(15)) add_box(tensor, start, count, {}, tensor->extents.back());
}

void Store::add_boxes(Stored *tensor, bool sequential) {
  Shape units = tensor->array.units();
  split(tensor, Shape(units.size()), units, 4, sequential);
  for (size_t i = tensor->extents.size(); i > 1; i--) {
    size_t k = random_->below(i);
    std::swap(tensor->extents[i - 1], tensor->extents[k]);
    std::swap(tensor->boxes[i - 1], tensor->boxes[k]);
  }
}

// One view of the whole: axes stored in another order, with a gap between outer steps, or one axis expanded.
void Store::add_strided(Stored *tensor) {
  Array &a = tensor->array;
  Shape units = a.units(), strides(units.size()), held = units;
  std::vector<uint32_t> order(units.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint32_t>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(random_->bits()));
  size_t expanded = units.size();
  if (random_->chance(30) && product(units) != 0) {
    expanded = random_->below(units.size());
    held[expanded] = 1;
    Array thin = a;  // every step along the axis repeats the first one
    thin.shape = units;
    std::vector<uint32_t> plain(units.size());
    for (size_t i = 0; i < plain.size(); i++) plain[i] = static_cast<uint32_t>(i);
    Shape start(units.size()), at(units.size());
    std::vector<uint8_t> once = take(a, start, held, plain);
    uint32_t unit = a.unit_bytes();
    for (size_t to = 0; to < a.bytes.size(); to += unit) {
      uint64_t from = 0;
      for (size_t i = 0; i < units.size(); i++) from = from * held[i] + (i == expanded ? 0 : at[i]);
      memcpy(&a.bytes[to], &once[from * unit], unit);
      for (size_t i = units.size(); i-- > 0;) {
        if (++at[i] < units[i]) break;
        at[i] = 0;
      }
    }
  }
  uint64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = order[i] == expanded ? 0 : stride;
    stride *= held[order[i]];
  }
  ckpt_extent extent = store(take(a, Shape(units.size()), held, order), a.unit_bytes(), a.dtype, false);
  add_box(tensor, Shape(units.size()), units, strides, extent);
}

IndexPointer Store::build(ckpt_error *err, Faults *faults) {
  std::vector<std::pair<std::string, std::string>> files;
  for (size_t i = 0; i < files_.size(); i++) files.push_back({"file-" + std::to_string(i), files_[i]});
  ckpt_index *index = nullptr;
  IndexPointer none(nullptr, ckpt_index_free);
  if (ckpt_index_new(&index, memory_source(files, faults), "store", "fake", nullptr, err) != CKPT_OK) return none;
  IndexPointer built(index, ckpt_index_free);
  for (Stored &tensor : tensors_) {
    for (size_t i = 0; i < tensor.boxes.size(); i++) {
      const Shape &box = boxes_[tensor.boxes[i]];
      uint64_t *copy = static_cast<uint64_t *>(ckpt_arena_array(&index->arena, box.size(), sizeof *copy));
      std::copy(box.begin(), box.end(), copy);
      tensor.extents[i].box = copy;
    }
    uint32_t number;
    if (ckpt_index_add(index, tensor.name.data(), tensor.name.size(), tensor.array.dtype,
                       static_cast<uint32_t>(tensor.array.shape.size()), tensor.array.shape.data(), tensor.role,
                       tensor.extents.data(), static_cast<uint32_t>(tensor.extents.size()), &number, err) != CKPT_OK)
      return none;
    index->tensors[number].details->extent_form = tensor.form == Form::kFlat    ? CKPT_EXTENT_FLAT
                                                  : tensor.form == Form::kBoxes ? CKPT_EXTENT_BOX
                                                                                : CKPT_EXTENT_STRIDED;
    for (const std::string &alias : tensor.aliases)
      if (ckpt_index_alias(index, number, alias.c_str(), err) != CKPT_OK) return none;
  }
  if (ckpt_index_finish(index, err) != CKPT_OK) return none;
  return built;
}

}  // namespace fake
