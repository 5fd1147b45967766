# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by rtp-send and rtp-receive: what both ends must agree on.

# rtp_format NAME: sets the arrays `rtp_encoder` (sound to packets) and `rtp_decoder` (back), and what describes the
# packets: `rtp_caps` for GStreamer; `payload`, `rtpmap` and `fmtp` for a session description.
# shellcheck disable=SC2034
rtp_format() {
  local encoding rate ptime=20000000
  fmtp=
  case $1 in
    opus)
      payload=96 encoding=OPUS rate=48000 rtpmap=opus/48000/2 fmtp='sprop-stereo=0;useinbandfec=1;usedtx=1'
      rtp_encoder=(opusenc audio-type=voice bitrate=24000 frame-size=20 dtx=true inband-fec=true packet-loss-percentage=5
        ! rtpopuspay pt=96 dtx=true)
      rtp_decoder=(rtpopusdepay ! opusdec plc=true use-inband-fec=true)
      ;;
    l16)
      payload=97 encoding=L16 rate=24000 rtpmap=L16/24000
      rtp_encoder=('audio/x-raw,rate=24000' ! rtpL16pay pt=97 "min-ptime=$ptime" "max-ptime=$ptime")
      rtp_decoder=(rtpL16depay)
      ;;
    pcmu)
      payload=0 encoding=PCMU rate=8000 rtpmap=PCMU/8000
      rtp_encoder=('audio/x-raw,rate=8000' ! mulawenc ! rtppcmupay pt=0 "min-ptime=$ptime" "max-ptime=$ptime")
      rtp_decoder=(rtppcmudepay ! mulawdec)
      ;;
    *)
      echo "$1: the formats are opus, l16 and pcmu" >&2
      exit 2
      ;;
  esac
  rtp_caps="application/x-rtp,media=audio,payload=$payload,clock-rate=$rate,encoding-name=$encoding,sprop-stereo=(string)0"
}
