// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/lru_cache.h"

#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <random>
#include <string>

namespace qtts {
namespace {

TEST(LruCacheTest, WhatWasNotUsedForLongestGoes) {
  LruCache<int> cache(3, 1000);
  for (const int i : {1, 2, 3}) cache.Insert(std::to_string(i), i, 10);
  ASSERT_NE(cache.Find("1"), nullptr);
  cache.Insert("4", 4, 10);
  EXPECT_EQ(cache.Find("2"), nullptr);
  for (const int i : {1, 3, 4}) {
    const int* const found = cache.Find(std::to_string(i));
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(*found, i);
  }
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_EQ(cache.bytes(), 30U);
}

TEST(LruCacheTest, BytesAreBounded) {
  LruCache<int> cache(100, 100);
  cache.Insert("a", 1, 40);
  cache.Insert("b", 2, 40);
  cache.Insert("c", 3, 100);
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_EQ(cache.Find("b"), nullptr);
  ASSERT_NE(cache.Find("c"), nullptr);
  cache.Insert("d", 4, 101);
  EXPECT_EQ(cache.Find("d"), nullptr);
  EXPECT_NE(cache.Find("c"), nullptr);
  EXPECT_EQ(cache.bytes(), 100U);
}

// For the GPU's caches, whose memory must not be freed during a computation.
TEST(LruCacheTest, TheOldestGivesWhatItOwns) {
  LruCache<std::unique_ptr<int>> cache(2);
  cache.Insert("a", std::make_unique<int>(1), 10);
  cache.Insert("b", std::make_unique<int>(2), 20);
  ASSERT_NE(cache.Find("a"), nullptr);
  const std::unique_ptr<int> taken = cache.TakeOldest();
  EXPECT_EQ(*taken, 2);
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.bytes(), 10U);
  EXPECT_EQ(*cache.TakeOldest(), 1);
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(cache.bytes(), 0U);
}

// Compared with a std::list.
TEST(LruCacheTest, IsWhatAListWouldBe) {
  constexpr size_t kMost = 5;
  std::mt19937 random(7);
  LruCache<uint32_t> cache(kMost);
  std::list<uint32_t> expected;  // most recently used first
  for (int i = 0; i < 10000; ++i) {
    const uint32_t value = random() % 12;
    const std::string key = std::to_string(value);
    const uint32_t* const found = cache.Find(key);
    const bool there = std::erase(expected, value) > 0;
    ASSERT_EQ(found != nullptr, there) << i;
    if (there) {
      EXPECT_EQ(*found, value);
      expected.push_front(value);
    } else if (random() % 2 == 0) {
      cache.Insert(key, value);
      expected.push_front(value);
      if (expected.size() > kMost) expected.pop_back();
    }
    ASSERT_EQ(cache.size(), expected.size());
  }
}

}  // namespace
}  // namespace qtts
