// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmetas.h"

namespace gstqtts {
namespace {

constexpr gchar kSentenceMeta[] = "TextAccumulateSentenceMeta";
constexpr gchar kSentenceWords[] = "words";  // its field: a GstBufferList

bool HasTags(const GstMetaInfo* info) {
  const gchar* const* tags = gst_meta_api_type_get_tags(info->api);
  return tags != nullptr && tags[0] != nullptr;
}

// Copies one meta to the buffer in `user_data`.
gboolean CopyMeta(GstBuffer* from, GstMeta** meta, gpointer user_data) {
  const GstMetaInfo* info = (*meta)->info;
  if (info->transform_func == nullptr || HasTags(info) || GST_META_FLAG_IS_SET(*meta, GST_META_FLAG_POOLED))
    return TRUE;
  GstMetaTransformCopy whole = {FALSE, 0, static_cast<gsize>(-1)};
  info->transform_func(static_cast<GstBuffer*>(user_data), *meta, from, _gst_meta_transform_copy, &whole);
  return TRUE;
}

// Returns null if the buffer has none, or the plugin that registers the meta was never loaded.
const GstStructure* SentenceOf(GstBuffer* text) {
  const GstMetaInfo* info = gst_meta_get_info(kSentenceMeta);
  if (info == nullptr || !gst_meta_info_is_custom(info)) return nullptr;
  GstCustomMeta* meta = gst_buffer_get_custom_meta(text, kSentenceMeta);
  return meta != nullptr ? gst_custom_meta_get_structure(meta) : nullptr;
}

}  // namespace

std::shared_ptr<void> KeptMetas(GstBuffer* text) {
  GstBuffer* kept = gst_buffer_new();
  gst_buffer_foreach_meta(text, CopyMeta, kept);
  const GstStructure* sentence = SentenceOf(text);
  const GValue* words = sentence != nullptr ? gst_structure_get_value(sentence, kSentenceWords) : nullptr;
  if (words != nullptr && G_VALUE_HOLDS(words, GST_TYPE_BUFFER_LIST) && g_value_get_boxed(words) != nullptr) {
    auto* list = static_cast<GstBufferList*>(g_value_get_boxed(words));
    for (guint i = 0; i < gst_buffer_list_length(list); ++i) {
      gst_buffer_foreach_meta(gst_buffer_list_get(list, i), CopyMeta, kept);
    }
  }
  gpointer state = nullptr;
  if (gst_buffer_iterate_meta(kept, &state) == nullptr) {
    gst_buffer_unref(kept);
    return nullptr;
  }
  return {kept, [](void* buffer) { gst_buffer_unref(static_cast<GstBuffer*>(buffer)); }};
}

void CopyMetas(const std::shared_ptr<void>& kept, GstBuffer* sound) {
  gst_buffer_foreach_meta(static_cast<GstBuffer*>(kept.get()), CopyMeta, sound);
}

bool IsAccumulatedSentence(GstBuffer* text) { return SentenceOf(text) != nullptr; }

}  // namespace gstqtts
