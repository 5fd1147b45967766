// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/word_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace qtts {
namespace {

using Ids = std::vector<int32_t>;

// The cached ids of `word`; {-1} if there are none.
Ids Find(WordCache& cache, const std::string& word) {
  Ids ids;
  return cache.Append(word, &ids) ? ids : Ids{-1};
}

TEST(WordCacheTest, KeepsIdsAndAppendsThem) {
  WordCache cache;
  EXPECT_EQ(Find(cache, " the"), Ids{-1});
  cache.Keep(" the", Ids{279});
  cache.Keep(" robots", Ids{7, 8, 9});
  Ids ids = {1};
  EXPECT_TRUE(cache.Append(" the", &ids));
  EXPECT_TRUE(cache.Append(" robots", &ids));
  EXPECT_EQ(ids, (Ids{1, 279, 7, 8, 9}));
  EXPECT_EQ(Find(cache, "the"), Ids{-1});
  EXPECT_EQ(Find(cache, " the "), Ids{-1});
  EXPECT_EQ(Find(cache, ""), Ids{-1});
}

TEST(WordCacheTest, WhatHasNoRoomIsNotKept) {
  WordCache cache;
  const std::string longest(30, 'a');
  cache.Keep(longest, Ids(8, 5));
  EXPECT_EQ(Find(cache, longest), Ids(8, 5));
  cache.Keep(longest + "a", Ids{1});
  EXPECT_EQ(Find(cache, longest + "a"), Ids{-1});
  cache.Keep("b", Ids(9, 5));
  EXPECT_EQ(Find(cache, "b"), Ids{-1});
  cache.Keep("", Ids{1});
  EXPECT_EQ(Find(cache, ""), Ids{-1});
}

TEST(WordCacheTest, ManyWordsTakeEachOthersPlacesButNotTheirIds) {
  WordCache cache;
  int kept = 0;
  for (int32_t i = 0; i < 20000; ++i) cache.Keep(std::to_string(i), Ids{i, i + 1});
  for (int32_t i = 0; i < 20000; ++i) {
    const Ids ids = Find(cache, std::to_string(i));
    if (ids == Ids{-1}) continue;
    ++kept;
    EXPECT_EQ(ids, (Ids{i, i + 1}));
  }
  EXPECT_GT(kept, 1000);
  EXPECT_EQ(Find(cache, "19999"), (Ids{19999, 20000})) << "the last one is there";
}

TEST(WordCacheTest, IsThreadSafe) {
  WordCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache] {
      for (int32_t i = 0; i < 20000; ++i) {
        const std::string word = std::to_string(i % 5000);
        const Ids ids = Find(cache, word);
        if (ids != Ids{-1}) {
          EXPECT_EQ(ids, Ids{i % 5000});
        }
        cache.Keep(word, Ids{i % 5000});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace qtts
