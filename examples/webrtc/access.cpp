// SPDX-License-Identifier: LGPL-2.1-or-later
#include "access.h"

#include <gio/gio.h>

#include <algorithm>

namespace {

bool Equal(const std::string& a, const std::string& b) { return g_ascii_strcasecmp(a.c_str(), b.c_str()) == 0; }

bool IsThisMachine(const std::string& authority) {
  GUri* uri = g_uri_parse(("http://" + authority).c_str(), G_URI_FLAGS_NONE, nullptr);
  if (uri == nullptr) return false;
  const char* host = g_uri_get_host(uri);
  const std::string name = host != nullptr ? host : "";
  g_uri_unref(uri);
  return g_hostname_is_ip_address(name.c_str()) != FALSE || Equal(name, "localhost") || Equal(name, g_get_host_name());
}

}  // namespace

bool IsOrigin(const std::string& text) {
  GUri* uri = g_uri_parse(text.c_str(), G_URI_FLAGS_NONE, nullptr);
  if (uri == nullptr) return false;
  const std::string scheme = g_uri_get_scheme(uri);
  const char* host = g_uri_get_host(uri);
  const bool is_origin = (scheme == "http" || scheme == "https") && host != nullptr && *host != '\0' &&
                         text.find_first_of("/?#@", scheme.size() + 3) == std::string::npos;
  g_uri_unref(uri);
  return is_origin;
}

bool MayConnect(const char* origin, const char* host, const std::vector<std::string>& allowed) {
  if (origin == nullptr) return true;
  const auto is_origin = [origin](const std::string& other) { return Equal(origin, other); };
  if (std::any_of(allowed.begin(), allowed.end(), is_origin)) return true;
  if (host == nullptr || !IsThisMachine(host)) return false;
  return is_origin("http://" + std::string(host)) || is_origin("https://" + std::string(host));
}
