// Scan: names that are all known call methods of what they are handed, which the file may have set to a name of its
// own. Each of these ran in CPython 3.11 with torch 2.15 and transformers 5.23.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "libckpt/recipe/scan/scan.h"
}

namespace {

std::string Text(const std::string &value) {
  return std::string("X") + static_cast<char>(value.size()) + std::string(3, '\0') + value;
}

// An object of a class, without its constructor, with one attribute.
std::string Object(const std::string &name, const std::string &key, const std::string &value) {
  return "c" + name + "\n)\x81}" + Text(key) + value + "sb";
}

const std::string kName = "cmine\nrun\n";

std::string Problems(const std::string &bytes) {
  ckpt_scan scan = {};
  ckpt_error err = {};
  EXPECT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", &err), CKPT_OK) << err.message;
  std::string all;
  for (size_t i = 0; i < scan.findings.n; i++) all += std::string(scan.findings.items[i].message) + "\n";
  ckpt_scan_free(&scan);
  return all;
}

// What loads, around one value: a name of the file, or a plain number in its place.
std::vector<std::pair<std::string, std::string>> Pickles(const std::string &value) {
  const std::string space = "argparse\nNamespace";
  std::string optimizer = "ctorch.optim.adamw\nAdamW\n)\x81}(" + Text("state") + Object(space, "get", value) +
                          Text("param_groups") + "]}" + Text("params") + "]" + Text("argument") + "asa" +
                          Text("defaults") + "}ub.";
  return {
      {"an optimizer's __setstate__ calls state.get", optimizer},
      {"a hash", "}" +
                     Object("transformers.generation.configuration_utils\nGenerationConfig", "to_json_string", value) +
                     "K\x01s."},
      {"a spec's hash", "}ctorch.distributed.tensor._dtensor_spec\nDTensorSpec\n)\x81}(" + Text("_hash") + "N" +
                            Text("_hash_impl") + value + "ubK\x01s."},
      {"dict() calls keys", "cbuiltins\ndict\n" + Object(space, "keys", value) + "\x85R."},
      {"also of an OrderedDict", "cbuiltins\ndict\nccollections\nOrderedDict\n)R}" + Text("keys") + value + "sb\x85R."},
      {"a parameter calls detach",
       "ctorch._utils\n_rebuild_parameter\n(" + Object(space, "detach", value) + "\x88}tR."},
      {"so does its class", "ctorch.nn.parameter\nParameter\n" + Object(space, "detach", value) + "\x85\x81."},
      {"items are attributes",
       "ctorch._utils\n_rebuild_parameter\n(clightning.fabric.utilities.data\nAttributeDict\n)"
       "\x81" +
           Text("detach") + value + "s\x88}tR."},
      {"a device's rebuild calls to",
       "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(" + Object(space, "to", value) + "NN\x89tR."},
  };
}

TEST(ScanMethods, NamesThatMethodsMayBeAreProblems) {
  for (const auto &[what, pickle] : Pickles(kName))
    EXPECT_NE(Problems("\x80\x02" + pickle).find("hands over for calling mine.run"), std::string::npos) << what;
  for (const auto &[what, pickle] : Pickles("K\x07")) EXPECT_EQ(Problems("\x80\x02" + pickle), "") << what;
}

TEST(ScanMethods, ANameItselfIsNoArgument) {
  const std::string rebuild =
      "\x80\x02"
      "ctorch._utils\n_rebuild_parameter\n(";
  EXPECT_NE(Problems(rebuild + kName + "\x88}tR.").find("mine.run"), std::string::npos);
  EXPECT_EQ(Problems(rebuild + "ctorch\nfloat32\n\x88}tR."), "");
  // beside a call that takes nothing of it, a name is a name
  EXPECT_EQ(Problems("\x80\x02(" + kName + "ccollections\nOrderedDict\n)Rt."), "");
}

// What honest files never call with arguments.
TEST(ScanMethods, UuidsAreNotConstructed) {
  EXPECT_NE(Problems("\x80\x02"
                     "cuuid\nUUID\n" +
                     Object("argparse\nNamespace", "replace", kName) + "\x85R."),
            "");
  EXPECT_NE(Problems("\x80\x02"
                     "cuuid\nUUID\n" +
                     Text("00") + "\x85R.")
                .find("calls uuid.UUID"),
            std::string::npos);
  EXPECT_EQ(Problems("\x80\x02" + Object("uuid\nUUID", "int", "K\x07") + "."), "");
  EXPECT_NE(Problems("\x80\x02"
                     "ctorch.distributed.device_mesh\nDeviceMesh\n" +
                     Text("cpu") + "\x85R."),
            "");
}

// What torchao 0.18 saves: a subclass by its name, settings, enums by value.
TEST(ScanMethods, QuantizedTensorsPass) {
  const std::string rebuild =
      "\x80\x02"
      "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\nc";
  const std::string state = "\n(NNt}(" + Text("mapping") +
                            "ctorchao.quantization.quant_primitives\nMappingType\nK\x01\x85R" + Text("granularity") +
                            "ctorchao.quantization.granularity\nPerRow\n)\x81}" + Text("dim") + "K\x01sbutR.";
  for (const char *name : {"torchao.quantization\nInt8Tensor", "torchao.quantization\nFloat8Tensor",
                           "torchao.optim.subclass_8bit\nOptimState8bit"})
    EXPECT_EQ(Problems(rebuild + name + state), "") << name;
  EXPECT_NE(Problems(rebuild + "torchao.quantization\nOtherTensor" + state), "");
}

}  // namespace
