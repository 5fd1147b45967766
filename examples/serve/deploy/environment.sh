# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced before every `ray start`: Ray's controller, proxies and replicas read these variables. Set one beforehand to
# change it; it has to be the same on all nodes.

# Sound goes client, HAProxy, replica. Without it it goes through a Python proxy, which at 200 streams is seconds late.
export RAY_SERVE_ENABLE_HA_PROXY=1
# Ray ends and restarts a HAProxy that is not ready by then; its 5 s are too short on busy cores.
export RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=${RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S:-90}
# A HAProxy that does not answer three times in a row is started again; with Ray's 10 s that takes over half a minute.
export RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=${RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S:-3}
# The longest silence of a client. The server is never silent as long: it speaks, or pings a session every 20 s; so a
# machine that died without a word is noticed by those whom it spoke to.
export RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S=${RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S:-3600}
export RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S=${RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S:-45}
# A request that cannot be connected goes to another replica; health checks find a lost machine within some seconds.
export RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S=${RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S:-2}
export RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER=${RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER:-2s}
# A request goes to another replica, too, if its replica died before it answered: no sound of it has left.
export RAY_SERVE_HAPROXY_RETRY_ON=${RAY_SERVE_HAPROXY_RETRY_ON:-conn-failure empty-response}
# HAProxy would keep the first sound back until the second write, 0.1 to 0.2 s later.
export RAY_SERVE_HAPROXY_TCP_NODELAY=${RAY_SERVE_HAPROXY_TCP_NODELAY:-1}
# When replicas come or go HAProxy is replaced; the old one closes its sessions after this time.
export RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S=${RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S:-3600}
# Sessions at once through one HAProxy: two descriptors each, and 4,132 of its own. It does not start with fewer.
ulimit -Sn "$(ulimit -Hn)"
descriptors=$(ulimit -n)
if [ "$descriptors" = unlimited ] || [ "$descriptors" -gt 24576 ]; then descriptors=24576; fi
export RAY_SERVE_HAPROXY_MAXCONN=${RAY_SERVE_HAPROXY_MAXCONN:-$(((descriptors - 4200) / 2))}
# The front never blocks, so it runs in the replica's own event loop: one thread less between card and client.
export RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD=${RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD:-0}
# Nothing is sent to Ray's makers.
export RAY_USAGE_STATS_ENABLED=0
