// SPDX-License-Identifier: LGPL-2.1-or-later
#include "config.h"
#include "gstqttssrc.h"

// Registers always and checks nothing: missing parts of this machine are reported when the element starts.
static gboolean plugin_init(GstPlugin* plugin) { return GST_ELEMENT_REGISTER(qttssrc, plugin); }

// The macro casts its string literals to gchar*.
#pragma GCC diagnostic ignored "-Wcast-qual"
GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, qtts, "Text-to-speech with Qwen3-TTS models", plugin_init,
                  VERSION, "LGPL", PACKAGE_NAME, PACKAGE_ORIGIN)
