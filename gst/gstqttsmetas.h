// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_METAS_H_
#define GST_QTTS_METAS_H_

#include <gst/gst.h>

#include <memory>

// Metas of text that also hold for its sound: those whose API has no tags, as GStreamer's elements copy them. A tag
// says what a meta depends on, such as memory or colour space, which sound does not share with text.
namespace gstqtts {

// Returns a buffer without memory that has the metas of `text` to be copied, and those of the words of a
// TextAccumulateSentenceMeta. Null if there are none.
std::shared_ptr<void> KeptMetas(GstBuffer* text);

// Copies them to a buffer of sound.
void CopyMetas(const std::shared_ptr<void>& kept, GstBuffer* sound);

// Returns true if `text` is a sentence of the element textaccumulate, which marks it with a TextAccumulateSentenceMeta.
bool IsAccumulatedSentence(GstBuffer* text);

}  // namespace gstqtts

#endif  // GST_QTTS_METAS_H_
