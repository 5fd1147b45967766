// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_EXAMPLES_WEBRTC_ACCESS_H_
#define QTTS_EXAMPLES_WEBRTC_ACCESS_H_

#include <string>
#include <vector>

// Whether a web page of `origin` may open a session with the server at `host`; both are the headers of these names,
// null if missing. Only our own page may, or one of the `allowed` origins (like "https://speech.example"): any other
// page in the browser of somebody who can reach this server could make it speak too.
//
// "Our own" means the same host and port, where the host is an address, localhost or the name of this machine. Another
// name must be among the allowed, as whoever owns a name can have it point at this machine (DNS rebinding). A client
// that names no origin is no browser, and is let in.
//
// Has no state: may be called on any thread.
bool MayConnect(const char* origin, const char* host, const std::vector<std::string>& allowed);

// Whether this is an origin as browsers write it: http or https, host and, if it is not the usual one, port.
bool IsOrigin(const std::string& text);

#endif  // QTTS_EXAMPLES_WEBRTC_ACCESS_H_
