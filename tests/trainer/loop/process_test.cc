// ckpt-train as a process: signals before the run begins, a limit on the size of files, what its failures advise.
#include "tests/trainer/loop/train_case.h"

namespace {

namespace fs = std::filesystem;
using training::data_folder;
using training::Outcome;

class Process : public training::Train {};

// A signal that comes before the run begins: here while --args waits for what a FIFO will say.
TEST_F(Process, SavesAndStopsWhenAskedBeforeItBegins) {
  for (const char *signal : {"TERM", "USR1", "INT"}) {
    const std::string fifo = at(std::string("args-") + signal), out = at(std::string("run-") + signal);
    const std::string script =
        "bash -c 'mkfifo " + fifo + "; " + binary_dir() + "/bin/ckpt-train --model " + data_folder + "llama --data " +
        data_folder + "rows.jsonl -o " + out + " --args " + fifo +
        " --threads 1 --quiet & pid=$!; for i in {1..200}; do grep -qE \"^SigCgt:.*[4-7c-f]...$\" /proc/$pid/status && "
        "grep -q ckpt-train /proc/$pid/comm && break; sleep 0.05; done; kill -" +
        signal + " $pid; timeout 20 bash -c \"echo {} > " + fifo + "\"; wait $pid'";
    const int status = std::system(script.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 3) << signal;
    EXPECT_TRUE(fs::exists(out + "/checkpoint-1")) << signal;
  }
}

// The signal of a file that becomes too large ends no run.
TEST_F(Process, ACheckpointThatIsTooLargeIsSaid) {
  const std::string script = "bash -c 'ulimit -f 32; exec " + binary_dir() + "/bin/ckpt-train --model " + data_folder +
                             "llama --data " + data_folder + "rows.jsonl -o " + at("run") +
                             " --max_steps 3 --save_steps 1 --quiet' 2>" + at("stderr");
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string said = bytes("stderr");
  EXPECT_NE(said.find("the checkpoint of step 1 is not written, training goes on: "), std::string::npos) << said;
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_EQ(log("run").size(), 3u);
}

TEST_F(Process, DumpsReplaceNothingUnasked) {
  const std::string words = "--model " + data_folder + "llama --data " + data_folder +
                            "rows.jsonl --quiet --dump-logits " + at("logits.safetensors");
  ASSERT_EQ(run(words).code, 0);
  const Outcome done = run(words);
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.text.find("logits.safetensors: exists (--force replaces it)"), std::string::npos) << done.text;
  EXPECT_EQ(run(words + " --force").code, 0);
}

}  // namespace
