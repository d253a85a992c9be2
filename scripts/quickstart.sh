#!/usr/bin/env bash
# Trains, evaluates and samples a small language model, in minutes on a CPU.
#
#   bash scripts/quickstart.sh [FOLDER] [--FLAG=VALUE...]
#
# FOLDER        for data and model; default: $QUICKSTART_DIR, else ./quickstart
# --FLAG=VALUE  passed to train.py, for example --train_steps=100
#
# Needs only Python 3.11, 3.12 or 3.13, and the package index. Run it again to resume.
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
python="${QUICKSTART_PYTHON:-.venv/bin/python}" # if set, the installation is skipped

heading() {
    printf '\n== %s\n' "$*"
}

# Prints a program's command, quoted for the shell, and runs it.
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
    echo "$told" >&2 # not /dev/stderr, which would reopen and truncate a file
    tail -n 1 <<<"$told" |
        "$python" -c 'import json, sys; print("%.3f" % json.load(sys.stdin)["bits_per_byte"])'
}

heading "1/6 Install into .venv"
[[ -n "${QUICKSTART_PYTHON:-}" ]] || bash scripts/install.sh

heading "2/6 Prepare text: the documentation that ships with Python, as bytes"
run prepare_data.py --builtin_corpus --tokenizer=byte --output_dir="$folder/data"

heading "3/6 Train a small Transformer-XL: 4 layers, segments of 64 bytes, memory of 64"
run train.py --data_dir="$folder/data" --model_dir="$folder/model" --preset=tiny \
    ${train_flags[@]+"${train_flags[@]}"}

heading "4/6 Evaluate it on held-out text"
with_memory="$(bits_per_byte)"

heading "5/6 Evaluate the same weights without memory"
without_memory="$(bits_per_byte --mem_len=0)"

heading "6/6 Continue a prompt with 200 bytes"
run generate.py --model_dir="$folder/model" --prompt="The class" --length=200 --temperature=0.7 \
    --seed=1

heading "Done"
echo "bits per byte of the test split: $with_memory with memory, $without_memory without"
echo "Data and model are in $folder; README.md describes the next steps."
