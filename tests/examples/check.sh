# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the tests of the example scripts: runs them as a user does, and judges what they make with ffmpeg and
# pocketsphinx, which share no code with the element.
set -euo pipefail
# shellcheck disable=SC2034
examples=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../examples
for tool in ffmpeg ffprobe pocketsphinx_continuous; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool here"; exit 77; }
done
work=$(mktemp -d)
said_by_all=$(mktemp)  # by all programs, on standard error
# Background jobs of a test end with it.
clean_up() {
  local pids
  mapfile -t pids < <(jobs -p)
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  [ ! -e "$work/ports" ] || xargs rm -f <"$work/ports"
  rm -rf "$work" "$said_by_all"
}
trap clean_up EXIT
exec 2> >(tee "$said_by_all" >&2)

# pocketsphinx, which knows US English alone, recognises these words of this speaker with any seed and in both layouts;
# "your" may become "a", "the tone" "the town" or "that time".
# shellcheck disable=SC2034
sentence="Please leave your message after the tone."
words="message after"
# shellcheck disable=SC2034
export QTTS_PROPERTIES="speaker=clara seed=1"

# Speech that is made more slowly than real time has gaps. The element warns of them, and what was heard then says nothing
# about the example.
fail() {
  echo "FAILED: $*" >&2
  if grep -rqs "more slowly than real time" "$said_by_all" "$work"; then
    echo "skipped: this machine makes speech more slowly than real time"
    exit 77
  fi
  exit 1
}

# equal WHAT ACTUAL EXPECTED
equal() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }

# stream FILE FIELD: of its first sound stream, such as codec_name.
stream() { ffprobe -v error -select_streams a:0 -show_entries "stream=$2" -of default=nw=1:nk=1 "$1" | head -n 1; }

# lasts FILE MINIMUM MAXIMUM: decoded, in seconds.
lasts() {
  local seconds
  seconds=$(ffmpeg -nostdin -v error -i "$1" -f s16le -ac 1 -ar 8000 - | wc -c | awk '{ print $1 / 16000 }')
  awk -v s="$seconds" -v min="$2" -v max="$3" 'BEGIN { exit !(s >= min && s <= max) }' ||
    fail "$1 lasts $seconds s, not $2 to $3 s"
}

# heard FILE [WORDS]: fails unless the recogniser hears these words in it, one after the other.
heard() {
  local recognised
  ffmpeg -nostdin -v error -y -i "$1" -ar 16000 -ac 1 "$work/heard.wav"
  recognised=$(pocketsphinx_continuous -infile "$work/heard.wav" -logfn /dev/null | tr '\n' ' ')
  [[ " $recognised " == *" ${2:-$words} "* ]] || fail "heard in $1: '$recognised', not '${2:-$words}'"
}

# loudness FILE [FILTER]: mean power in dB after an ffmpeg filter, such as atrim=1:2.
loudness() {
  ffmpeg -nostdin -hide_banner -nostats -i "$1" -af "${2:+$2,}volumedetect" -f null - 2>&1 |
    sed -n 's/.*mean_volume: \(-\{0,1\}[0-9.]*\) dB/\1/p'
}

# residue A B: level of the difference of two sounds below A in dB, up to 1 kHz.
residue() {
  ffmpeg -nostdin -v error -y -i "$1" -i "$2" -filter_complex \
    "[0]aresample=48000,aformat=channel_layouts=mono[a];[1]aresample=48000,aformat=channel_layouts=mono[b];[a][b]amerge,pan=mono|c0=c0-c1" \
    "$work/residue.wav"
  awk -v a="$(loudness "$1" lowpass=1000)" -v d="$(loudness "$work/residue.wav" lowpass=1000)" 'BEGIN { print a - d }'
}

# samples FILE: a digest of the decoded samples.
samples() { ffmpeg -nostdin -v error -i "$1" -f s16le - | md5sum; }

# above WHAT VALUE LIMIT
above() { awk -v v="$2" -v l="$3" 'BEGIN { exit !(v > l) }' || fail "$1 is $2, not above $3"; }

# wait_for WHAT COMMAND...: until the command succeeds. Only broken code needs the limit of ten minutes: on a busy machine, 64
# sentences that are made at once take more than one.
wait_for() {
  local i
  for ((i = 0; i < 6000; i++)); do
    if "${@:2}"; then return 0; fi
    sleep 0.1
  done
  fail "waited ten minutes in vain for $1"
}

# grown FOLDER NAME SIZE: whether a file of this name is larger than that, such as 20k.
grown() { [ -n "$(find "$1" -name "$2" -size "+$3")" ]; }

# uptime_ms: a clock that nobody sets.
uptime_ms() { awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime; }

# free_port: an even port that is free, as is the next one, and that no other test has taken. Those from 32768 on are given
# to whoever asks for any.
free_port() {
  local port taken i
  for ((i = 0; i < 1000; i++)); do
    port=$((10000 + RANDOM % 11000 * 2))
    ! grep -qE "$(printf ':(%04X|%04X) ' "$port" $((port + 1)))" /proc/net/{tcp,udp}{,6} 2>/dev/null || continue
    taken=${TMPDIR:-/tmp}/qtts-test-port-$port
    ln -s "$work" "$taken" 2>/dev/null || continue
    echo "$taken" >>"$work/ports"
    break
  done
  echo "$port"
}

# On a busy machine programs start late and fall behind, so no test has an upper limit of elapsed time. Recordings of playback are raw
# samples, whose number is the position of the recording. `raw` is their
# format for ffmpeg, `raw_output` makes it write each packet at once, `raw_parec` is for parec.
# shellcheck disable=SC2034
raw=(-f s16le -ar 16000 -ac 1) raw_output=(-f s16le -ar 16000 -ac 1 -flush_packets 1)
# shellcheck disable=SC2034
raw_parec=(--format=s16le --rate=16000 --channels=1)

# position RECORDING: its length so far, in ms.
position() { echo $(($(stat -c %s "$1" 2>/dev/null || echo 0) / 32)); }

# record_until RECORDING POSITION: waits for it.
record_until() { wait_for "$2 ms of $1" reached "$1" "$2"; }
reached() { [ "$(position "$1")" -ge "$2" ]; }

# sound_in RECORDING: five numbers in ms: begin and end of the sound, its length without silence, begin and end of the
# longest silence in it. Silence is blocks of 20 ms below -50 dB.
sound_in() {
  od -An -v -td2 -w640 "$1" | awk '
    { power = 0; for (i = 1; i <= NF; i++) power += $i * $i }
    power / NF > 32768 * 32768 * 1e-5 {
      if (!loud++) first = last = NR - 1
      if (NR - 1 - last > to - from) { from = last; to = NR - 1 }
      last = NR
    }
    END { print first * 20, last * 20, loud * 20, from * 20, to * 20 }'
}

# sounds RECORDING MS: whether it has that much sound.
sounds() {
  local loud
  read -r _ _ loud _ < <(sound_in "$1")
  [ "$loud" -ge "$2" ]
}

# fell_silent RECORDING MS: whether it ends with that much silence after some sound.
fell_silent() {
  local last loud
  read -r _ last loud _ < <(sound_in "$1")
  [ "$loud" -gt 0 ] && [ "$(position "$1")" -ge $((last + $2)) ]
}

# recording FILE RECORDING: converts a file to the format of recordings.
recording() { ffmpeg -nostdin -v error -y -i "$1" "${raw[@]}" "$2"; }

# excerpt RECORDING FROM TO FILE: the part between two positions, as a file with a header.
excerpt() { ffmpeg -nostdin -v error -y "${raw[@]}" -ss "$2ms" -t "$(($3 - $2))ms" -i "$1" "$4"; }

# stop PID [STATUS]: ends a recorder as Ctrl-C does; fails if it ends with another status than this or 0.
stop() {
  local status=0
  kill -INT "$1" 2>/dev/null || true
  wait "$1" || status=$?
  [ "$status" = 0 ] || [ "$status" = "${2:-0}" ] || fail "a recorder ended with status $status"
}

# without_waiting: standard input without the message that another script is setting up.
without_waiting() { sed '/^waiting for another script, which is setting up \.\.\.$/d'; }

# refused KIND PATTERN COMMAND...: fails unless the command's status is 2 (usage) or not 0 (error), and its output matches.
refused() {
  local status=0 said expected=$1 pattern=$2
  shift 2
  said=$("$@" 2>&1 | without_waiting) || status=$?
  case $expected in
    usage) equal "the status of $*" "$status" 2 ;;
    error) [ "$status" != 0 ] || fail "$* succeeds" ;;
  esac
  [[ $said =~ $pattern ]] || fail "$* says '$said', not '$pattern'"
}

answers() { pactl info >/dev/null 2>&1; }

# sound_server: starts one for this test. "ear.monitor" records the output; the microphone records what is played to "room".
sound_server() {
  command -v pulseaudio parec >/dev/null || { echo "skipped: no pulseaudio here"; exit 77; }
  export HOME=$work XDG_RUNTIME_DIR=$work PULSE_SERVER=unix:$work/socket
  pulseaudio -n --daemonize=no --use-pid-file=no --disable-shm=yes --exit-idle-time=-1 --log-target="file:$work/log" \
    -L "module-native-protocol-unix socket=$work/socket auth-anonymous=1" -L "module-null-sink sink_name=ear" \
    -L "module-null-sink sink_name=room" 2>/dev/null &
  wait_for "the sound server" answers
  if ! pactl set-default-sink ear || ! pactl set-default-source room.monitor; then
    cat "$work/log"
    fail "the sound server does not start"
  fi
}
