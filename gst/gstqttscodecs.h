// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CODECS_H_
#define GST_QTTS_CODECS_H_

#include <gst/gst.h>

#include <span>
#include <string>

#include "gstqttscontainer.h"
#include "qtts/status.h"

// The allow-list of elements that may decode a recording. None of them opens a file or an address, and none is a bin,
// which could add elements of its own. An element that does must not enter these tables.
namespace gstqtts {

// An element factory, and the Debian package that brings it.
struct AllowedElement {
  const char* factory;
  const char* package;
};

// A codec, or raw samples, which need no decoder.
struct Codec {
  const char* name;                          // for messages
  const char* caps;                          // of its encoded stream
  std::span<const AllowedElement> parser;    // between container and decoder; empty: none
  std::span<const AllowedElement> decoders;  // the best first
};

// Returns the element that takes the container apart; empty for bare streams of frames.
std::span<const AllowedElement> FindDemuxer(Container container);
// Returns the codec of a bare stream of frames; null for other containers.
const Codec* FindCodec(Container container);
// Returns the codec of a stream with these caps; null if it is not allowed.
const Codec* FindCodec(const GstCaps* caps);

// Creates the first of `choices`, of which there is one at least, that is installed. A rank of GST_RANK_NONE disables
// one. `content` begins the error's text, such as "AAC". The element is floating.
//
// Errors: kUnsupported if none is installed, with the package of the first.
qtts::Result<GstElement*> MakeElement(std::span<const AllowedElement> choices, const std::string& content);

// Returns kUnsupported with the reason why a file's content gives no recording, and the kinds of files that do.
qtts::Status NoRecordingError(const std::string& why);
// Returns the same error for a file that names another place for its sound.
qtts::Status ExternalSoundError();

}  // namespace gstqtts

#endif  // GST_QTTS_CODECS_H_
