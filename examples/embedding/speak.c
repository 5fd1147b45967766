// SPDX-License-Identifier: LGPL-2.1-or-later
// Speaks a text and writes the samples (signed 16 bits, 24000 Hz, mono) to standard output, by pulling them
// from an appsink: no main loop is needed. Warnings and errors go to standard error; the exit status is 0 only if
// everything was spoken and written.
//   speak-c TEXT ["PROPERTIES"] | aplay -f S16_LE -r 24000
// PROPERTIES are further ones of the element, as gst-launch-1.0 takes them: "speaker=hugh seed=1".
#include <errno.h>
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <stdio.h>
#include <string.h>

// Writes the samples of a buffer. FALSE, with a message, if that fails.
static gboolean write_samples(GstBuffer* buffer) {
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) return FALSE;
  const gboolean written = fwrite(map.data, 1, map.size, stdout) == map.size && fflush(stdout) == 0;
  if (!written) g_printerr("standard output: %s\n", g_strerror(errno));
  gst_buffer_unmap(buffer, &map);
  return written;
}

// Prints all warnings and errors so far. FALSE if there was an error.
static gboolean print_problems(GstElement* pipeline) {
  gboolean good = TRUE;
  GstBus* bus = gst_element_get_bus(pipeline);
  GstMessage* message = NULL;
  while ((message = gst_bus_pop_filtered(bus, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR)) != NULL) {
    GError* error = NULL;
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      gst_message_parse_error(message, &error, NULL);
      good = FALSE;
    } else {
      gst_message_parse_warning(message, &error, NULL);
    }
    g_printerr("%s\n", error->message);
    g_error_free(error);
    gst_message_unref(message);
  }
  gst_object_unref(bus);
  return good;
}

// Speaks and writes to the end. FALSE, with a message, if not everything was spoken and written.
static gboolean speak(GstElement* pipeline, GstAppSink* out) {
  gboolean good = TRUE;
  gsize samples = 0;
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  // One sample is one frame of 80 ms; NULL comes at the end and after an error.
  GstSample* sample = NULL;
  while (good && (sample = gst_app_sink_pull_sample(out)) != NULL) {
    good = write_samples(gst_sample_get_buffer(sample));
    gst_sample_unref(sample);
    ++samples;
  }
  good = print_problems(pipeline) && good;
  if (good && samples == 0) {
    g_printerr("Nothing was spoken.\n");
    good = FALSE;
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  return good;
}

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const gboolean help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
  if (help || argc < 2 || argc > 3) {
    (help ? g_print : g_printerr)("usage: %s TEXT [PROPERTIES] >samples\n", argv[0]);
    return help ? 0 : 2;
  }

  GError* error = NULL;
  gchar* line = g_strdup_printf(
      "qttssrc name=speech %s ! appsink name=out sync=false max-buffers=8 caps=audio/x-raw,format=S16LE",
      argc == 3 ? argv[2] : "");
  GstElement* pipeline = gst_parse_launch(line, &error);
  g_free(line);
  if (error != NULL) {
    g_printerr("%s\n", error->message);
    g_clear_error(&error);
    gst_clear_object(&pipeline);
    return 1;
  }
  GstElement* speech = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  GstElement* out = gst_bin_get_by_name(GST_BIN(pipeline), "out");
  g_object_set(speech, "text", argv[1], NULL);
  const gboolean good = speak(pipeline, GST_APP_SINK(out));
  gst_object_unref(out);
  gst_object_unref(speech);
  gst_object_unref(pipeline);
  return good ? 0 : 1;
}
