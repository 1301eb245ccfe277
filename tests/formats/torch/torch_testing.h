// PyTorch archives made by hand: a zip of stored records, and pickles of protocol 0 for its object.
#ifndef CKPT_TESTS_FORMATS_TORCH_TESTING_H
#define CKPT_TESTS_FORMATS_TORCH_TESTING_H

#include "tests/formats/formats_testing.h"

namespace formats_testing {

inline void put(std::string *out, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) out->push_back(static_cast<char>(i < 8 ? value >> (8 * i) : 0));
}

// A zip archive of stored records.
inline std::string zip(const std::vector<std::pair<std::string, std::string>> &records) {
  std::string out, directory;
  for (const auto &record : records) {
    const uint64_t at = out.size();
    std::string fields;
    put(&fields, 20, 2);
    put(&fields, 0, 8);
    put(&fields, 0, 4);  // no checksum
    put(&fields, record.second.size(), 4);
    put(&fields, record.second.size(), 4);
    put(&fields, record.first.size(), 2);
    put(&fields, 0, 2);
    out += "PK\3\4" + fields + record.first + record.second;
    directory += std::string("PK\1\2") + '\24' + '\0' + fields;
    put(&directory, 0, 10);
    put(&directory, at, 4);
    directory += record.first;
  }
  const uint64_t at = out.size();
  out += directory + "PK\5\6";
  put(&out, 0, 4);
  put(&out, records.size(), 2);
  put(&out, records.size(), 2);
  put(&out, directory.size(), 4);
  put(&out, at, 4);
  put(&out, 0, 2);
  return out;
}

inline std::string archive(const std::string &pickle, const std::vector<std::string> &storages) {
  std::vector<std::pair<std::string, std::string>> records = {{"a/data.pkl", pickle}};
  for (size_t i = 0; i < storages.size(); i++) records.push_back({"a/data/" + std::to_string(i), storages[i]});
  records.push_back({"a/version", "3"});
  return zip(records);
}

// Pickles of protocol 0, which can be read.
inline std::string number(const std::string &value) { return "I" + value + "\n"; }
inline std::string text(const std::string &value) { return "V" + value + "\n"; }
inline std::string tuple(const std::vector<std::string> &items) {
  std::string out = "(";
  for (const std::string &item : items) out += item;
  return out + "t";
}
inline std::string sizes(const std::vector<std::string> &items) {
  std::vector<std::string> numbers;
  for (const std::string &item : items) numbers.push_back(number(item));
  return tuple(numbers);
}
inline std::string storage(const std::string &type, const std::string &key, const std::string &numel) {
  return tuple({text("storage"), "ctorch\n" + type + "\n", text(key), text("cpu"), number(numel)}) + "Q";
}
inline std::string call(const std::string &name, const std::vector<std::string> &args) {
  return "ctorch._utils\n" + name + "\n" + tuple(args) + "R";
}
inline std::string view(const std::string &from, const std::string &offset, const std::vector<std::string> &shape,
                        const std::vector<std::string> &strides) {
  return call("_rebuild_tensor_v2", {from, number(offset), sizes(shape), sizes(strides), "I00\n", "}"});
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>> &items) {
  std::string out = "}(";
  for (const auto &item : items) out += text(item.first) + item.second;
  return out + "u";
}
const std::string kSixFloats(24, 'x');

// All bytes of a tensor.
inline std::string values(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::string bytes(tensor->n_bytes, '\0');
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << tensor->name << ": " << text_of(err);
  return bytes;
}

inline std::string failure(const std::string &bytes, ckpt_status *status = nullptr) {
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err, false);
  EXPECT_EQ(index, nullptr);
  EXPECT_NE(err.status, CKPT_EINTERNAL);
  if (status != nullptr) *status = err.status;
  return text_of(err);
}

// One tensor "w" over a record of 24 bytes.
inline std::string one(const std::string &tensor) { return archive(dict({{"w", tensor}}) + ".", {kSixFloats}); }

}  // namespace formats_testing

#endif
