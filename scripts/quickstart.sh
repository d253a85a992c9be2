#!/usr/bin/env bash
# From nothing to a language model that continues a text, in minutes, on a CPU.
#
#   bash scripts/quickstart.sh [FOLDER] [--FLAG=VALUE...]
#
# FOLDER        where data and model go; default $QUICKSTART_DIR, else ./quickstart
# --FLAG=VALUE  handed to train.py, for example --train_steps=100
#
# Needs only Python 3.11, 3.12 or 3.13, and the package index. Run again, it goes on where it was.
set -euo pipefail

folder="${QUICKSTART_DIR:-quickstart}" train_flags=()
for argument in "$@"; do
    case "$argument" in
        --help)
            sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
            exit
            ;;
        --*) train_flags+=("$argument") ;;
        *) folder="$argument" ;;
    esac
done
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
cd "$(dirname "$0")/.."
python="${QUICKSTART_PYTHON:-.venv/bin/python}" # another one skips the installation

heading() {
    printf '\n== %s\n' "$*"
}

# Shows a program's command, as a shell takes it, and runs it.
run() {
    printf '$ python scripts/%s' "$1"
    printf ' %q' "${@:2}"
    echo
    "$python" "scripts/$1" "${@:2}"
}

# bits_per_byte FLAG...: evaluates on the test split.
bits_per_byte() {
    local told
    told="$(run evaluate.py --model_dir="$folder/model" --data_dir="$folder/data" --split=test "$@")" || return
    echo "$told" >&2 # not by way of /dev/stderr, which opens a file anew and so loses what is in it
    tail -n 1 <<<"$told" |
        "$python" -c 'import json, sys; print("%.3f" % json.load(sys.stdin)["bits_per_byte"])'
}

heading "1/6 Install into .venv"
[[ -n "${QUICKSTART_PYTHON:-}" ]] || bash scripts/install.sh

heading "2/6 Prepare text: the documentation that comes with Python, as bytes"
run prepare_data.py --builtin_corpus --tokenizer=byte --output_dir="$folder/data"

heading "3/6 Train a small Transformer-XL: 4 layers that see 64 bytes and remember more"
run train.py --data_dir="$folder/data" --model_dir="$folder/model" --preset=tiny \
    ${train_flags[@]+"${train_flags[@]}"}

heading "4/6 Evaluate it on text it has not seen"
with_memory="$(bits_per_byte)"

heading "5/6 Evaluate the same weights without memory: each segment stands alone"
without_memory="$(bits_per_byte --mem_len=0)"

heading "6/6 Continue a prompt with 200 bytes"
run generate.py --model_dir="$folder/model" --prompt="The class" --length=200 --temperature=0.7 \
    --seed=1

heading "Done"
echo "bits per byte of the test split: $with_memory with memory, $without_memory without"
echo "Data and model are in $folder; README.md says what else can be done with them."
