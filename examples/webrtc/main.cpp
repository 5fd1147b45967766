// SPDX-License-Identifier: LGPL-2.1-or-later
// Serves a web page on which one types text and hears it, over WebRTC. Each browser is a Peer; the page and
// the signalling (JSON over a WebSocket) are served by libsoup.
#include <gio/gio.h>
#include <gst/gst.h>
#include <libsoup/soup.h>

#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "../program.h"
#include "access.h"
#include "peer.h"

namespace {

struct Browser {
  SoupWebsocketConnection* connection;
  std::unique_ptr<Peer> peer;
};

struct Server {
  PeerOptions options;
  std::vector<std::string> allowed_origins;
  size_t max_browsers = 0;
  std::list<Browser> browsers;
};

// More than the longest text needs, however it is escaped. Whoever sends more is disconnected.
constexpr guint64 kMaxMessageBytes = 128 * 1024;

// The page is all in one file, talks to this server alone, and is not to be framed by another.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; media-src mediastream: "
    "blob:; "
    "connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void Refuse(SoupServerMessage* message, guint status, const char* why) {
  soup_server_message_set_status(message, status, nullptr);
  soup_server_message_set_response(message, "text/plain; charset=utf-8", SOUP_MEMORY_STATIC, why, strlen(why));
}

// When the headers of a request are there: nothing here has a use for a body, so none is kept.
void OnRequest(SoupServer* /*server*/, SoupServerMessage* message, const char* /*path*/, GHashTable* /*query*/,
               gpointer /*user_data*/) {
  soup_message_body_set_accumulate(soup_server_message_get_request_body(message), FALSE);
  const std::string method = soup_server_message_get_method(message);
  if (method == "GET" || method == "HEAD") return;
  soup_message_headers_replace(soup_server_message_get_response_headers(message), "Allow", "GET, HEAD");
  Refuse(message, SOUP_STATUS_METHOD_NOT_ALLOWED, "There is only a page to GET.\n");
}

void OnSessionRequest(SoupServer* soup, SoupServerMessage* message, const char* path, GHashTable* query,
                      gpointer user_data) {
  auto* server = static_cast<Server*>(user_data);
  OnRequest(soup, message, path, query, nullptr);
  if (soup_server_message_get_status(message) != 0) return;
  SoupMessageHeaders* headers = soup_server_message_get_request_headers(message);
  const char* origin = soup_message_headers_get_one(headers, "Origin");
  if (!MayConnect(origin, soup_message_headers_get_one(headers, "Host"), server->allowed_origins)) {
    gchar* escaped = g_strescape(origin, nullptr);
    g_printerr("A page of %s was refused; --allow-origin lets others in than our own.\n", escaped);
    g_free(escaped);
    Refuse(message, SOUP_STATUS_FORBIDDEN, "Pages of this origin are not let in; see --allow-origin.\n");
  }
}

void OnPage(SoupServer* /*server*/, SoupServerMessage* message, const char* path, GHashTable* /*query*/,
            gpointer /*user_data*/) {
  if (std::string(path) != "/") {
    Refuse(message, SOUP_STATUS_NOT_FOUND, "The page is at /.\n");
    return;
  }
  GBytes* page = g_resources_lookup_data("/qttssrc/webrtc/page.html", G_RESOURCE_LOOKUP_FLAGS_NONE, nullptr);
  gsize size = 0;
  const auto* data = static_cast<const char*>(g_bytes_get_data(page, &size));
  soup_server_message_set_status(message, SOUP_STATUS_OK, nullptr);
  SoupMessageHeaders* headers = soup_server_message_get_response_headers(message);
  soup_message_headers_append(headers, "Cache-Control", "no-cache");
  soup_message_headers_append(headers, "Content-Security-Policy", kContentSecurityPolicy);
  soup_message_headers_append(headers, "X-Content-Type-Options", "nosniff");
  soup_server_message_set_response(message, "text/html; charset=utf-8", SOUP_MEMORY_COPY, data, size);
  g_bytes_unref(page);
}

Browser* FindBrowser(Server* server, SoupWebsocketConnection* connection) {
  for (Browser& browser : server->browsers) {
    if (browser.connection == connection) return &browser;
  }
  return nullptr;
}

void OnReceived(SoupWebsocketConnection* connection, gint type, GBytes* bytes, gpointer user_data) {
  Browser* browser = FindBrowser(static_cast<Server*>(user_data), connection);
  if (browser == nullptr) return;
  gsize size = 0;
  const auto* data = static_cast<const char*>(g_bytes_get_data(bytes, &size));
  // A message that cannot be parsed, or is no text, becomes a discarded value, which the peer answers with an error.
  nlohmann::json message(nlohmann::json::value_t::discarded);
  if (type == SOUP_WEBSOCKET_DATA_TEXT) message = nlohmann::json::parse(data, data + size, nullptr, false);
  browser->peer->Receive(message);
}

void OnClosed(SoupWebsocketConnection* connection, gpointer user_data) {
  auto* server = static_cast<Server*>(user_data);
  server->browsers.remove_if([connection](const Browser& browser) {
    if (browser.connection != connection) return false;
    g_object_unref(browser.connection);
    return true;
  });
}

void OnConnection(SoupServer* /*soup*/, SoupServerMessage* /*message*/, const char* /*path*/,
                  SoupWebsocketConnection* connection, gpointer user_data) {
  auto* server = static_cast<Server*>(user_data);
  const auto send = [connection](const nlohmann::json& message) {
    if (soup_websocket_connection_get_state(connection) != SOUP_WEBSOCKET_STATE_OPEN) return;
    const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    soup_websocket_connection_send_text(connection, text.c_str());
  };
  const auto send_bytes = [connection](const std::string& bytes) {
    if (soup_websocket_connection_get_state(connection) != SOUP_WEBSOCKET_STATE_OPEN) return;
    soup_websocket_connection_send_binary(connection, bytes.data(), bytes.size());
  };
  // A browser that wants to go on connects again, and gets a pipeline of its own.
  const auto fail = [connection, send](const std::string& text) {
    send({{"type", "failed"}, {"text", text}});
    if (soup_websocket_connection_get_state(connection) == SOUP_WEBSOCKET_STATE_OPEN) {
      soup_websocket_connection_close(connection, SOUP_WEBSOCKET_CLOSE_SERVER_ERROR, nullptr);
    }
  };
  if (server->browsers.size() >= server->max_browsers) {
    fail("The server has as many browsers as it takes. Try again later.");
    return;
  }
  soup_websocket_connection_set_keepalive_interval(connection, 10);
  soup_websocket_connection_set_max_incoming_payload_size(connection, kMaxMessageBytes);
  g_signal_connect(connection, "message", G_CALLBACK(OnReceived), server);
  g_signal_connect(connection, "closed", G_CALLBACK(OnClosed), server);
  server->browsers.push_back({SOUP_WEBSOCKET_CONNECTION(g_object_ref(connection)),
                              std::make_unique<Peer>(server->options, send, send_bytes, fail)});
  server->browsers.back().peer->Start();
}

// A qttssrc that says nothing: it tells at once whether the model can be used, and keeps the engine loaded
// while no browser is there.
GstElement* HoldEngine(const PeerOptions& options) {
  GstElement* pipeline = LaunchPipeline("qttssrc name=speech is-live=true idle-mode=wait ! fakesink");
  if (pipeline == nullptr) return nullptr;
  GstElement* speech = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  if (!options.model_path.empty()) g_object_set(speech, "model-path", options.model_path.c_str(), nullptr);
  if (!options.device.empty()) gst_util_set_object_arg(G_OBJECT(speech), "device", options.device.c_str());
  gst_object_unref(speech);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);

  GstBus* bus = gst_element_get_bus(pipeline);
  bool loaded = false;
  bool failed = false;
  while (!loaded && !failed) {
    GstMessage* message = gst_bus_timed_pop_filtered(
        bus, GST_CLOCK_TIME_NONE, static_cast<GstMessageType>(GST_MESSAGE_ERROR | GST_MESSAGE_PROGRESS));
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      g_printerr("%s\n", ProblemText(message).c_str());
      failed = true;
    } else {
      GstProgressType type = GST_PROGRESS_TYPE_START;
      gst_message_parse_progress(message, &type, nullptr, nullptr);
      loaded = type == GST_PROGRESS_TYPE_COMPLETE;
    }
    gst_message_unref(message);
  }
  gst_object_unref(bus);
  if (failed) {
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_clear_object(&pipeline);
  }
  return pipeline;
}

bool Listen(SoupServer* soup, const char* address, int port) {
  GSocketAddress* socket_address = g_inet_socket_address_new_from_string(address, static_cast<guint>(port));
  if (socket_address == nullptr) {
    g_printerr("\"%s\" is not an address of this machine, like 127.0.0.1 or 0.0.0.0.\n", address);
    return false;
  }
  GError* error = nullptr;
  const bool listens =
      soup_server_listen(soup, socket_address, static_cast<SoupServerListenOptions>(0), &error) != FALSE;
  g_object_unref(socket_address);
  if (!listens) {
    g_printerr("Cannot listen on port %d of %s: %s\n", port, address, error->message);
    g_error_free(error);
    return false;
  }
  GSList* uris = soup_server_get_uris(soup);
  for (GSList* item = uris; item != nullptr; item = item->next) {
    gchar* uri = g_uri_to_string(static_cast<GUri*>(item->data));
    g_print("Open %s\n", uri);
    g_free(uri);
  }
  g_slist_free_full(uris, reinterpret_cast<GDestroyNotify>(g_uri_unref));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  gint port = 8080;
  gint max_browsers = 32;
  g_autofree gchar* address = g_strdup("127.0.0.1");
  g_autofree gchar* model_path = nullptr;
  g_autofree gchar* device = nullptr;
  g_autofree gchar* stun_server = nullptr;
  gboolean keep_silence = FALSE;
  g_auto(GStrv) allowed_origins = nullptr;
  const GOptionEntry entries[] = {
      {"port", 'p', 0, G_OPTION_ARG_INT, &port, "Port of the page, 8080 unless given; 0 = any", "PORT"},
      {"address", 'a', 0, G_OPTION_ARG_STRING, &address, "Address to listen on; 0.0.0.0 lets other machines in", "IP"},
      {"model-path", 'm', 0, G_OPTION_ARG_FILENAME, &model_path, "Folder of a checkpoint; else the bundled voice",
       "DIR"},
      {"device", 'd', 0, G_OPTION_ARG_STRING, &device, "auto, cpu or cuda", "DEVICE"},
      {"stun-server", 's', 0, G_OPTION_ARG_STRING, &stun_server, "For browsers beyond a router", "stun://HOST:PORT"},
      {"keep-silence", 'k', 0, G_OPTION_ARG_NONE, &keep_silence,
       "Send the silence with which a voice begins, instead of cutting it", nullptr},
      {"max-browsers", 'b', 0, G_OPTION_ARG_INT, &max_browsers, "At once, 32 unless given", "NUMBER"},
      {"allow-origin", 'o', 0, G_OPTION_ARG_STRING_ARRAY, &allowed_origins,
       "A page of this origin may connect too: for proxies, and hosts with a name; can be repeated", "https://HOST"},
      {},
  };
  if (!ParseOptions(&argc, &argv, entries, "- type text in a web page and hear it")) return 2;

  if (port < 0 || port > 65535 || max_browsers < 1) {
    g_printerr("--port is a number from 0 to 65535, --max-browsers one above 0.\n");
    return 2;
  }

  Server server;
  server.max_browsers = static_cast<size_t>(max_browsers);
  for (gchar** origin = allowed_origins; origin != nullptr && *origin != nullptr; ++origin) {
    if (!IsOrigin(*origin)) {
      g_printerr("\"%s\" is not an origin, like https://speech.example or http://localhost:3000.\n", *origin);
      return 2;
    }
    server.allowed_origins.emplace_back(*origin);
  }
  if (model_path != nullptr) server.options.model_path = model_path;
  if (device != nullptr) server.options.device = device;
  server.options.keep_silence = keep_silence != FALSE;
  if (stun_server != nullptr) server.options.stun_server = stun_server;

  GstElement* engine = HoldEngine(server.options);
  if (engine == nullptr) return 1;

  SoupServer* soup = soup_server_new("server-header", "qttssrc ", nullptr);
  soup_server_add_early_handler(soup, nullptr, OnRequest, nullptr, nullptr);
  soup_server_add_handler(soup, nullptr, OnPage, nullptr, nullptr);
  soup_server_add_early_handler(soup, "/session", OnSessionRequest, &server, nullptr);
  soup_server_add_websocket_handler(soup, "/session", nullptr, nullptr, OnConnection, &server, nullptr);
  const bool listens = Listen(soup, address, port);
  if (listens) MainLoop().Run();
  soup_server_disconnect(soup);
  for (const Browser& browser : server.browsers) g_object_unref(browser.connection);
  server.browsers.clear();
  g_object_unref(soup);
  gst_element_set_state(engine, GST_STATE_NULL);
  gst_object_unref(engine);
  return listens ? 0 : 1;
}
