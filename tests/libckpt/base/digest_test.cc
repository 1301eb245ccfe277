// Tests of the content digest: the vectors of docs/digest.md, the page itself, and its twenty-line Python.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/base/digest.h"
}

namespace {

struct Vector {
  const char *name;
  ckpt_dtype dtype;
  const char *stored_dtype;  // safetensors' name
  std::vector<uint64_t> shape;
  std::string bytes;
  const char *digest;
};

std::string Ramp(size_t n) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; i++) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

const std::vector<Vector> &Vectors() {
  static const std::vector<Vector> vectors = {
      {"scalar",
       CKPT_F32,
       "F32",
       {},
       std::string("\x00\x00\x80\x3f", 4),
       "ckpt1:56608bb80740beed16d57141409e845bf7d6ab8588c6d0f7c3a9461fe5210d42"},
      {"empty",
       CKPT_BF16,
       "BF16",
       {0, 3},
       "",
       "ckpt1:9ee3053c97369e0a5c050d588a29ac96f389ec50b70440846f6936dafd07cfc4"},
      {"packed",
       CKPT_F4_E2M1,
       "F4",
       {2, 4},
       "\x10\x32\x54\x76",
       "ckpt1:13eb7aa0207941416b1c5d6d5d15d65bc682d7f4564f1875a32e292cad919466"},
      {"leaves",
       CKPT_U8,
       "U8",
       {1048577},
       Ramp(1048577),
       "ckpt1:7418e112fcfdc1007bacd56bc39df2d5d595a6766b07772b50add57481a06600"},
  };
  return vectors;
}

const char kNoTensors[] = "ckpt1:9dfab5a445f641033347570b06fc1ee82a8dca5bb2636db9f21b7e4e7aa545ee";
const char kFourTensors[] = "ckpt1:32b65bc65d217a3a08ee679aa190f67e65d02467a655b30063849fdc6a54dcb8";

std::string Text(const ckpt_digest &digest) {
  char text[71];
  return ckpt_digest_text(&digest, text);
}

std::string ReadFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class DigestTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ckpt_hasher_new(&hasher_, nullptr), CKPT_OK); }
  void TearDown() override { ckpt_hasher_free(hasher_); }

  ckpt_digest Tensor(const Vector &v) {
    uint64_t n_leaves = ckpt_digest_n_leaves(v.bytes.size());
    std::vector<uint8_t> leaves(32 * n_leaves);
    for (uint64_t i = 0; i < n_leaves; i++) {
      size_t start = i * CKPT_LEAF_BYTES, n = std::min<size_t>(CKPT_LEAF_BYTES, v.bytes.size() - start);
      EXPECT_EQ(ckpt_digest_leaf(hasher_, v.bytes.data() + start, n, &leaves[32 * i], nullptr), CKPT_OK);
    }
    ckpt_digest digest = {};
    EXPECT_EQ(ckpt_digest_tensor(hasher_, v.dtype, static_cast<uint32_t>(v.shape.size()), v.shape.data(),
                                 v.bytes.size(), leaves.data(), &digest, nullptr),
              CKPT_OK);
    return digest;
  }

  using Entries = std::vector<std::pair<std::string, ckpt_digest>>;

  ckpt_status Add(const Entries &entries, ckpt_error *err) {
    ckpt_status status = ckpt_digest_model_begin(hasher_, entries.size(), err);
    for (size_t i = 0; i < entries.size() && status == CKPT_OK; i++)
      status = ckpt_digest_model_add(hasher_, i == 0 ? nullptr : entries[i - 1].first.c_str(), entries[i].first.c_str(),
                                     &entries[i].second, err);
    return status;
  }

  std::string Model(const Entries &entries) {
    ckpt_digest digest = {};
    EXPECT_EQ(Add(entries, nullptr), CKPT_OK);
    EXPECT_EQ(ckpt_hasher_end(hasher_, digest.bytes, nullptr), CKPT_OK);
    return Text(digest);
  }

  Entries OfVectors() {
    std::map<std::string, ckpt_digest> entries; /* std::string compares unsigned bytes */
    for (const Vector &v : Vectors()) entries[v.name] = Tensor(v);
    return {entries.begin(), entries.end()};
  }

  ckpt_hasher *hasher_ = nullptr;
};

TEST_F(DigestTest, Sha256OfKnownText) {
  uint8_t leaf[32];
  ASSERT_EQ(ckpt_digest_leaf(hasher_, "abc", 3, leaf, nullptr), CKPT_OK);
  ckpt_digest digest;
  ASSERT_TRUE(ckpt_digest_parse("ckpt1:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", &digest));
  EXPECT_EQ(0, memcmp(leaf, digest.bytes, 32));
}

TEST_F(DigestTest, VectorsOfThePage) {
  for (const Vector &v : Vectors()) EXPECT_EQ(Text(Tensor(v)), v.digest) << v.name;
  EXPECT_EQ(Model({}), kNoTensors);
  EXPECT_EQ(Model(OfVectors()), kFourTensors);
}

TEST_F(DigestTest, NamesCount) {
  Entries entries = OfVectors();
  entries.back().first += "z";
  EXPECT_NE(Model(entries), kFourTensors);
}

TEST_F(DigestTest, NamesComeOnceInTheOrderOfUnsignedBytes) {
  ckpt_error err = {};
  EXPECT_EQ(Add({{"Z", {}}, {"z", {}}, {"\xC3\xA9", {}}}, &err), CKPT_OK);
  EXPECT_EQ(Add({{"\xC3\xA9", {}}, {"z", {}}}, &err), CKPT_EEXIST);
  EXPECT_STREQ(err.tensor, "z");
  err = {};
  EXPECT_EQ(Add({{"a", {}}, {"b", {}}, {"b", {}}}, &err), CKPT_EEXIST);
  EXPECT_STREQ(err.tensor, "b");
}

TEST_F(DigestTest, DtypeAndShapeCount) {
  Vector v = Vectors()[2];
  v.shape = {4, 2};
  EXPECT_NE(Text(Tensor(v)), v.digest);
  v.shape = {4};
  v.dtype = CKPT_U8;
  EXPECT_NE(Text(Tensor(v)), v.digest);
}

TEST_F(DigestTest, SizeThatDoesNotFitTheShapeIsOurBug) {
  uint64_t shape[] = {3};
  uint8_t leaf[32] = {};
  ckpt_digest digest;
  EXPECT_EQ(ckpt_digest_tensor(hasher_, CKPT_F32, 1, shape, 11, leaf, &digest, nullptr), CKPT_EINTERNAL);
}

TEST(DigestLeaves, CountsAtTheEdges) {
  EXPECT_EQ(ckpt_digest_n_leaves(0), 0u);
  EXPECT_EQ(ckpt_digest_n_leaves(1), 1u);
  EXPECT_EQ(ckpt_digest_n_leaves(CKPT_LEAF_BYTES), 1u);
  EXPECT_EQ(ckpt_digest_n_leaves(CKPT_LEAF_BYTES + 1), 2u);
  EXPECT_EQ(ckpt_digest_n_leaves(UINT64_MAX), UINT64_C(1) << 44);
}

TEST(DigestText, ParsesWhatItPrints) {
  ckpt_digest digest;
  ASSERT_TRUE(ckpt_digest_parse(kFourTensors, &digest));
  EXPECT_EQ(Text(digest), kFourTensors);
  std::string upper = kFourTensors;
  for (size_t i = 6; i < upper.size(); i++) upper[i] = static_cast<char>(toupper(upper[i]));
  ASSERT_TRUE(ckpt_digest_parse(upper.c_str(), &digest));
  EXPECT_EQ(Text(digest), kFourTensors);
}

TEST(DigestText, RefusesWhatIsNone) {
  std::string good = kFourTensors;
  ckpt_digest digest;
  for (const std::string &bad :
       {std::string(), good.substr(0, 69), good + "0", good.substr(6), "ckpt2" + good.substr(5),
        good.substr(0, 69) + "g", good.substr(0, 30) + " " + good.substr(31)})
    EXPECT_FALSE(ckpt_digest_parse(bad.c_str(), &digest)) << bad;
}

std::string U64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; i++) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// The four tensors as a safetensors file.
std::string FourTensorsFile() {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
  for (const Vector &v : Vectors()) {
    header += std::string(",\"") + v.name + "\":{\"dtype\":\"" + v.stored_dtype + "\",\"shape\":[";
    for (size_t i = 0; i < v.shape.size(); i++) header += (i ? "," : "") + std::to_string(v.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += v.bytes;
    header += std::to_string(data.size()) + "]}";
  }
  header += "}";
  return U64(header.size()) + header + data;
}

TEST(DigestPage, QuotesTheProgramAndTheVectors) {
  std::string page = ReadFile(CKPT_TESTS_DIR "/../docs/digest.md"), program = ReadFile(CKPT_TESTS_DIR "/digest.py");
  EXPECT_NE(page.find("```python\n" + program + "```\n"), std::string::npos)
      << "docs/digest.md quotes another digest.py";
  for (const Vector &v : Vectors())
    EXPECT_NE(page.find(std::string("| `") + v.name + "` | " + ckpt_dtype_name(v.dtype)), std::string::npos) << v.name;
  for (const Vector &v : Vectors()) EXPECT_NE(page.find(v.digest), std::string::npos) << v.name;
  EXPECT_NE(page.find(kNoTensors), std::string::npos);
  EXPECT_NE(page.find(kFourTensors), std::string::npos);
  for (int dtype = CKPT_DTYPE_NONE + 1; dtype < CKPT_N_DTYPES; dtype++)
    EXPECT_NE(page.find(ckpt_dtype_name(static_cast<ckpt_dtype>(dtype))), std::string::npos) << dtype;
}

TEST(DigestPage, ProgramAgrees) {
  if (system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  Folder folder;
  std::string path = folder.write("four.safetensors", FourTensorsFile());
  FILE *pipe = popen(("python3 '" CKPT_TESTS_DIR "/digest.py' " + path).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[512] = "";
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(std::string(line), std::string(kFourTensors) + "  " + path + "\n");
}

}  // namespace
