// build.h - which build a test runs in. Test objects are the same in release and under sanitizers, which link those of
// release (CKPT_TEST_OBJECTS), so they ask when they run.
#ifndef CKPT_TESTS_BUILD_H
#define CKPT_TESTS_BUILD_H

#include <string>

std::string binary_dir();  // of the programs
bool is_sanitized();

// Whether everything is compared. Sanitizers look for what is wrong in memory, and fewer cases show that: they sample
// what release compares in whole, unless --full is given.
bool is_thorough();

#endif
