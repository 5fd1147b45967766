// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/of_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace qtts {
namespace {

struct Counted {
  static inline std::atomic<int> alive = 0;
  Counted() { ++alive; }
  ~Counted() { --alive; }
  int value = 0;
};

TEST(OfThreadTest, EachThreadHasItsOwnWhileItLives) {
  OfThread<Counted>().value = 1;
  std::thread([] {
    EXPECT_EQ(OfThread<Counted>().value, 0);
    OfThread<Counted>().value = 2;
    EXPECT_EQ(OfThread<Counted>().value, 2);
    EXPECT_EQ(Counted::alive, 2);
  }).join();
  EXPECT_EQ(OfThread<Counted>().value, 1);
  EXPECT_EQ(Counted::alive, 1);
}

TEST(OfThreadTest, EachTypeHasAnObjectOfItsOwn) {
  struct First {
    int value = 1;
  };
  struct Second {
    int value = 2;
  };
  EXPECT_EQ(OfThread<First>().value, 1);
  EXPECT_EQ(OfThread<Second>().value, 2);
}

}  // namespace
}  // namespace qtts
