// Indexes over files in memory whose tensors lie there in every way that an extent can say: flat ranges, boxes, views,
// behind each decoder, with replicas, empty pieces and zeros that no file holds. Also the sources and sinks that count
// and fail.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "tests/libckpt/fake/fake_array.h"

namespace fake {

using IndexPointer = std::unique_ptr<ckpt_index, decltype(&ckpt_index_free)>;

// The n-th call from now fails where fail_at is n; 0: none does.
struct Faults {
  std::atomic<long> n_calls{0};
  long fail_at = 0;
  bool next_fails() { return ++n_calls == fail_at; }
};

// A source over named bytes; it keeps its own copy.
ckpt_source *memory_source(const std::vector<std::pair<std::string, std::string>> &files, Faults *faults = nullptr);

// A sink into `files` by name that fails as told, and notes what became of it.
struct MemorySink {
  std::map<std::string, std::string> files;
  std::vector<std::string> names;
  std::atomic<bool> is_published{false}, is_abandoned{false}, is_closed{false};
  Faults *faults = nullptr;
  std::mutex mutex;
  std::atomic<int> n_joined{0};
};
ckpt_sink *counting_sink(MemorySink *into, Faults *faults = nullptr);

enum class Form { kFlat, kBoxes, kStrided };

struct Stored {
  std::string name;
  Array array;
  ckpt_role role = CKPT_ROLE_PARAMETER;
  std::vector<std::string> aliases;
  Form form = Form::kFlat;
  std::vector<ckpt_extent> extents;
  std::vector<size_t> boxes;  // per extent: its box in Store::boxes
};

// A torch.save archive of data records like PyTorch's: aligned, sizes behind the records unless they are deflated.
struct TorchOptions {
  std::string byteorder = "little";  // no such record where empty
  bool deflates = false;
  int n_records = 1;
  bool pickle_behind = false;  // data.pkl behind the data, where torch never writes it
  std::string pickle;          // another data.pkl
};
std::string torch_archive(const std::string &record, TorchOptions options = {});

class Store {
 public:
  explicit Store(Random *random, uint32_t n_files = 3) : random_(random), files_(n_files) {}

  // Stores the array somehow; sequential decoders only where allowed.
  Stored &add(const std::string &name, Array array, bool sequential = true);
  // The same with a chosen form.
  Stored &add(const std::string &name, Array array, Form form, bool sequential);
  // One raw flat extent in file 0, for tests that count reads.
  Stored &add_plain(const std::string &name, Array array);

  // Boxes of equal columns, each one zstd stream in file 0: a matrix sharded by columns and compressed.
  Stored &add_columns(const std::string &name, Array array, uint64_t n_boxes);

  // Bytes behind a decoder chain, at the end of one of the files.
  ckpt_extent store(std::vector<uint8_t> bytes, uint32_t unit_bytes, ckpt_dtype dtype, bool sequential);

  IndexPointer build(ckpt_error *err, Faults *faults = nullptr);
  const std::deque<Stored> &tensors() const { return tensors_; }

 private:
  void add_flat(Stored *tensor, bool sequential);
  void add_boxes(Stored *tensor, bool sequential);
  void add_strided(Stored *tensor);
  void split(Stored *tensor, Shape start, Shape count, int depth, bool sequential);
  void add_box(Stored *tensor, const Shape &start, const Shape &count, const Shape &strides, ckpt_extent extent);

  Random *random_;
  std::vector<std::string> files_;
  std::deque<Stored> tensors_;
  std::deque<Shape> boxes_;
};

}  // namespace fake
