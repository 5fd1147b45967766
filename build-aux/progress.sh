# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by debian.sh: runs a long command and shows its progress.
#
# QTTS_PROGRESS_SECONDS=N: interval of progress lines if standard error is not a terminal; default 15.

# interruptible COMMAND...: runs it with this standard input; returns its status. Ctrl-C, TERM and HUP reach it as one
# interrupt each, after which it may take its time to end. `interrupted` is then the status to exit with, else empty.
interruptible() {
  local command count=0 seen status try
  interrupted=
  # In a session of its own, a Ctrl-C in the terminal comes to this script alone. Without a shell's job control, what
  # runs in the background ignores interrupts unless told otherwise. Descriptor 9 is the lock of set_up.
  env --default-signal=INT,QUIT setsid "$@" <&0 9<&- &
  command=$!
  # shellcheck disable=SC2317
  pass_on() {
    interrupted=$1 count=$((count + 1))
    for ((try = 0; try < 50; try++)); do # The session may not be there yet.
      ! kill -INT -- "-$command" 2>/dev/null || break
      kill -0 "$command" 2>/dev/null || break
      sleep 0.02
    done
  }
  trap 'pass_on 130' INT
  trap 'pass_on 143' TERM
  trap 'pass_on 129' HUP
  while :; do
    seen=$count status=0
    wait "$command" || status=$?
    [ "$count" -ne "$seen" ] || break # else a signal ended the wait, not the command
  done
  trap - INT TERM HUP
  return "$status"
}

# with_progress WHAT NOW COMMAND...: runs it with its output in the file $log. Meanwhile prints WHAT and the output of the
# command NOW: on a terminal in one changing line, otherwise in intervals.
# shellcheck disable=SC2154
with_progress() {
  local status=0 watcher
  watch_progress "$1" "$2"
  interruptible "${@:3}" >>"$log" 2>&1 </dev/null || status=$?
  end_progress
  return "$status"
}

# watch_progress WHAT NOW: begins to print that, until end_progress. Sets `watcher`, its process.
watch_progress() {
  local what=$1 now=$2
  (
    trap '' INT HUP
    exec 9<&-
    seconds=0 every=${QTTS_PROGRESS_SECONDS:-15}
    while sleep 1 >/dev/null 2>&1; do
      seconds=$((seconds + 1))
      line=$($now)
      line="$what: ${line:+$line, }$seconds s"
      if [ -t 2 ]; then
        printf '\r\033[K%.79s' "$line" >&2
      elif [ $((seconds % every)) -eq 0 ]; then
        echo "  $line" >&2
      fi
    done
  ) &
  watcher=$!
}

end_progress() {
  kill "$watcher"
  wait "$watcher" 2>/dev/null || true
  watcher=
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# stopped WHAT HOW_TO_GO_ON STATUS: prints why the command of with_progress failed or was interrupted.
# Returns the status to exit with.
# shellcheck disable=SC2154
stopped() {
  local lines
  if [ -n "$interrupted" ]; then
    echo "interrupted while $1:" >&2
  else
    echo "$1 failed:" >&2
  fi
  lines=$(grep -aE '^(E:|W:|dpkg:|FAILED:|ninja:)|error:|ERROR|undefined reference|No space left' "$log" | tail -n 6) || true
  [ -n "$lines" ] || lines=$(tail -n 6 "$log")
  # shellcheck disable=SC2001
  sed 's/^/  /' <<<"$lines" >&2
  echo "all it said: $log" >&2
  echo "to go on: $2" >&2
  return "${interrupted:-$3}"
}
