// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_FUZZ_CHECK_H_
#define QTTS_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends a fuzzer with a message when a property does not hold.
#define QTTS_FUZZ_CHECK(condition)                                                       \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // QTTS_TESTS_FUZZ_CHECK_H_
