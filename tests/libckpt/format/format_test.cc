// What capabilities do to a description: objects are told apart by what they are, not by what they are called. And
// findings, which are the same where their defect is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/format/format.h"
}

namespace {

using namespace fake;

class Objects : public ::testing::Test {
 protected:
  // What a format without objects says of {key: {"epoch": 3, "args": {"lr": 1}}}, read from `format`.
  std::vector<std::string> lost(const char *key, bool is_whole, const char *format) {
    ckpt_error err = {};
    ckpt_index *index = nullptr;
    EXPECT_EQ(ckpt_index_new(&index, nullptr, "memory", format, nullptr, &err), CKPT_OK) << text_of(err);
    ckpt_arena *arena = &index->arena;
    auto dict = [arena](std::vector<std::pair<std::string, ckpt_object *>> entries) {
      ckpt_object *made = ckpt_object_new(arena, CKPT_OBJECT_DICT, entries.size(), nullptr);
      for (size_t i = 0; i < entries.size(); i++) {
        made->items[2 * i] = ckpt_object_text(arena, entries[i].first.data(), entries[i].first.size());
        made->items[2 * i + 1] = entries[i].second;
      }
      return made;
    };
    ckpt_object *value =
        dict({{"epoch", ckpt_object_int(arena, 3)}, {"args", dict({{"lr", ckpt_object_int(arena, 1)}})}});
    ckpt_index_set_objects(index, dict({{key, value}}), is_whole ? value : nullptr);
    EXPECT_EQ(ckpt_objects_count(index), 1u);
    ckpt_format row = {};
    row.name = "plain";
    ckpt_losses losses = {};
    losses.arena = arena;
    EXPECT_EQ(ckpt_normalize(&row, index, &losses, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(index->objects, nullptr);
    EXPECT_EQ(index->whole, nullptr);
    std::vector<std::string> texts(losses.texts, losses.texts + losses.n);
    ckpt_index_free(index);
    return texts;
  }
};

using Texts = std::vector<std::string>;

TEST_F(Objects, OneThatIsCalledAsTheWholeIsNotTheWhole) {
  EXPECT_EQ(lost("torch", false, "torch"), Texts({"1 object (torch)"}));
  EXPECT_EQ(lost("trainer", false, "torch"), Texts({"1 object (trainer)"}));
}

TEST_F(Objects, OfTheWholeItsFormatSaysWhatStandsElsewhereToo) {
  EXPECT_EQ(lost("anything", true, "torch"), Texts({"1 object (args)"}));  // plain numbers are the trainer's
  EXPECT_EQ(lost("anything", true, "none of ours"), Texts({"2 objects (epoch, args)"}));
}

TEST(Findings, ADefectIsToldOfOnceWhateverCameOfIt) {
  ckpt_findings findings = {};
  ckpt_error err = {};
  EXPECT_EQ(ckpt_findings_add_note(&findings, "a", "not read: item (no zip archive)", "no zip archive", &err), CKPT_OK);
  EXPECT_EQ(ckpt_findings_add_note(&findings, "b", "no zip archive", nullptr, &err), CKPT_OK);
  EXPECT_EQ(ckpt_findings_add(&findings, &err, CKPT_WARNING, "c", nullptr, "%s", "no zip archive"), CKPT_OK);
  EXPECT_EQ(ckpt_findings_add(&findings, &err, CKPT_PROBLEM, "d", "t", "%s", "no zip archive"), CKPT_OK);
  EXPECT_TRUE(ckpt_findings_tell_of(&findings, "a", "no zip archive"));
  EXPECT_TRUE(ckpt_findings_tell_of(&findings, "b", "no zip archive"));
  EXPECT_FALSE(ckpt_findings_tell_of(&findings, "b", "zip"));  // a part of the text is another defect
  EXPECT_FALSE(ckpt_findings_tell_of(&findings, "a", "not read: item (no zip archive)"));
  EXPECT_FALSE(ckpt_findings_tell_of(&findings, "c", "no zip archive"));  // no problem
  EXPECT_FALSE(ckpt_findings_tell_of(&findings, "d", nullptr));           // of a tensor
  EXPECT_TRUE(ckpt_findings_tell_of(&findings, "a", nullptr));
  EXPECT_FALSE(ckpt_findings_tell_of(&findings, nullptr, nullptr));
  ckpt_findings_free(&findings);
}

}  // namespace
