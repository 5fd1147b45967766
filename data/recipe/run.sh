#!/bin/sh
# The whole recipe, in order.  WORK is a scratch folder with about 20 GB free.
# CPU part (Debian: flite1-dev gcc wordnet-base wamerican fortunes):
set -e
WORK=${1:?usage: run.sh WORK}; HERE=$(cd "$(dirname "$0")" && pwd); cd "$HERE"; mkdir -p "$WORK"
cc -O2 flite_batch.c -o "$WORK/flite_batch" -lflite_cmu_us_slt -lflite_usenglish -lflite_cmulex -lflite -lm \
   -static -Wl,--unresolved-symbols=ignore-all        # the audio output of flite is not used
python3 build_corpus.py "$WORK/corpus" --seed 1
python3 bpe.py "$WORK/corpus" "$WORK/tok"
# GPU part (PyTorch with CUDA, NumPy); synthesis runs beside the codec training
./synth.sh "$WORK/flite_batch" "$WORK/corpus" "$WORK/syn" "$(nproc)" &
python3 train_codec.py "$WORK/syn" "$WORK/codec" --budget 380 --gan_at 0.25 --seed 1
python3 train_talker.py "$WORK/codec" "$WORK/corpus" "$WORK/tok" "$WORK/talker" --budget 355 --rows 64 --frames 12288 --compile --seed 1
python3 export.py "$WORK/talker/talker.pt" "$WORK/codec/decoder.pt" "$WORK/tok" "$WORK/checkpoint"
python3 generate.py "$WORK/checkpoint" test_sentences.txt "$WORK/out" --sgreedy

# Second round: decoder continued with frozen codes, larger code predictor, more and more varied text.  In the pilot this
# was one run on a machine with 2 GPUs, started from the checkpoint of the first round, with everything it needs packed:
#   python3 build_corpus.py "$WORK/corpus2" --extend "$WORK/corpus" --seed 2 --chars 5000000 --shards 384
#   mkdir -p "$WORK/b/codec"; cp "$WORK"/codec/codes*.npz "$WORK/codec/meta.npz" "$WORK/b/codec"; cp "$WORK/codec/encoder.pt" "$WORK/b"
#   gzip -c "$WORK/flite_batch" >"$WORK/b/flite_batch.gz"; tar -C "$WORK" -czf "$WORK/b/text.tar.gz" corpus corpus2 tok
#   ./round2.sh "$WORK/b" "$WORK/out2" 462
#   python3 export.py "$WORK/out2/talker.pt" "$WORK/out2/decoder.pt" "$WORK/tok" "$WORK/checkpoint2"
