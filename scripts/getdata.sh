#!/usr/bin/env bash
# Downloads public corpora, verifies them, and splits them into files for prepare_data.py.
#
#   bash scripts/getdata.sh NAME... [--output_dir=data] [--base_url=URL] [--sha256=HEX]
#
# NAME          enwik8, text8, wikitext-103, wikitext-2 or lm1b
# --output_dir  the corpus is written to OUTPUT_DIR/NAME, as train, valid and test text files
# --base_url    mirror to download the archive from; file:// works too
# --sha256      checksum of the archive, if it differs from the published one
#
# enwik8 and text8 are split as usual: the last tenth is half validation, half test.
# An existing corpus is kept; on an error, no incomplete output is left.
set -euo pipefail

NAMES="enwik8, text8, wikitext-103, wikitext-2, lm1b"
LM1B="1-billion-word-language-modeling-benchmark-r13output"
VENV="$(dirname "$0")/../.venv/bin/python"
PYTHON="${PYTHON:-$([[ -x "$VENV" ]] && echo "$VENV" || echo python3)}"

fail() {
    echo "getdata: error: $*" >&2
    exit 1
}

usage_error() {
    echo "getdata: error: $*; see --help" >&2
    exit 2
}

# Sets archive, sha256, homes (tried in order) and hint, the flags of prepare_data.py that reproduce
# the published results, as in docs/models.md.
describe() {
    case "$1" in
        enwik8)
            archive=enwik8.zip
            sha256=547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc
            homes=(http://mattmahoney.net/dc)
            hint="--tokenizer=byte --drop_newlines"
            ;;
        text8)
            archive=text8.zip
            sha256=a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232
            homes=(http://mattmahoney.net/dc)
            hint="--tokenizer=char --unknown=error"
            ;;
        wikitext-103)
            archive=wikitext-103-v1.zip
            sha256=242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590
            homes=(
                https://wikitext.smerity.com
                https://s3.amazonaws.com/research.metamind.io/wikitext
            )
            hint="--tokenizer=word"
            ;;
        wikitext-2)
            archive=wikitext-2-v1.zip
            sha256=92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c
            homes=(
                https://wikitext.smerity.com
                https://s3.amazonaws.com/research.metamind.io/wikitext
            )
            hint="--tokenizer=word"
            ;;
        lm1b)
            archive="$LM1B.tar.gz"
            sha256=01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e
            homes=(https://www.statmt.org/lm-benchmark)
            hint="--tokenizer=word --end_of_line=boundary --shuffle_sentences=4 --min_count=3"
            ;;
        *) usage_error "unknown corpus $1; choose from $NAMES" ;;
    esac
}

# fetch NAME FILE: from the first home that answers.
fetch() {
    local home problem progress=--silent
    [[ ! -t 2 ]] || progress=--progress-bar
    for home in "${homes[@]}"; do
        echo "$1: fetching ${home%/}/$archive" >&2
        if problem="$(curl --fail --location --retry 3 "$progress" --write-out '%{errormsg}' \
            --output "$2" "${home%/}/$archive")"; then
            return
        fi
    done
    fail "$1: could not fetch ${home%/}/$archive: $problem"
}

# Works on zip and tar alike, and where no unzip is installed.
unpack() {
    "$PYTHON" -c 'import shutil, sys; shutil.unpack_archive(*sys.argv[1:])' "$1" "$2"
}

checksum() {
    "$PYTHON" -c 'import hashlib, sys
with open(sys.argv[1], "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest())' "$1"
}

# split FILE FOLDER: the last two twentieths are validation and test.
split() {
    "$PYTHON" -c 'import os, sys
path, folder = sys.argv[1:]
held_out = os.path.getsize(path) // 20
sizes = {"train": os.path.getsize(path) - 2 * held_out, "valid": held_out, "test": held_out}
with open(path, "rb") as whole:
    for name, left in sizes.items():
        with open(os.path.join(folder, name + ".txt"), "wb") as part:
            while left:
                left -= part.write(whole.read(min(left, 1 << 20)))' "$1" "$2"
}

# lay_out NAME UNPACKED FOLDER: fails where a part is missing.
lay_out() {
    local part held_out
    case "$1" in
        enwik8 | text8) split "$2/$1" "$3" ;;
        wikitext-*)
            for part in train valid test; do
                mv "$2/$1/wiki.$part.tokens" "$3/$part.txt" || return
            done
            ;;
        lm1b) # validation and test are the same 1 of the 50 held-out files, as published
            held_out="$2/$LM1B/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"
            mv "$2/$LM1B/training-monolingual.tokenized.shuffled" "$3/train" &&
                cp "$held_out" "$3/valid.txt" && cp "$held_out" "$3/test.txt"
            ;;
    esac
}

get() {
    local name="$1" folder="$output_dir/$1" found problem
    describe "$name"
    [[ -z "$base_url" ]] || homes=("$base_url")
    [[ -z "$own_sha256" ]] || sha256="$own_sha256"
    if [[ -e "$folder" ]]; then
        echo "$name: is in $folder already" >&2
    else
        mkdir -p "$output_dir"
        draft="$(mktemp -d "$output_dir/.$name.XXXXXX")"
        mkdir "$draft/unpacked" "$draft/$name"
        fetch "$name" "$draft/$archive"
        found="$(checksum "$draft/$archive")"
        [[ "$found" == "$sha256" ]] ||
            fail "$name: sha256 of $archive must be $sha256, got $found"
        echo "$name: unpacking" >&2
        problem="$( (unpack "$draft/$archive" "$draft/unpacked" &&
            lay_out "$name" "$draft/unpacked" "$draft/$name") 2>&1)" ||
            fail "$name: cannot lay out $archive: ${problem##*$'\n'}" # a traceback ends with it
        chmod 755 "$draft/$name"
        mv "$draft/$name" "$folder"
        rm -rf "$draft"
    fi
    local train="$folder/train.txt"
    [[ "$name" != lm1b ]] || train="$folder/train/*"
    echo "python scripts/prepare_data.py --train='$train' --valid='$folder/valid.txt'" \
        "--test='$folder/test.txt' $hint --output_dir='$folder-data'"
}

output_dir=data base_url="" own_sha256="" draft="" names=()
trap '[[ -z "$draft" ]] || rm -rf "$draft"' EXIT
for argument in "$@"; do
    case "$argument" in
        --help)
            sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
            exit
            ;;
        --output_dir=*) output_dir="${argument#*=}" ;;
        --base_url=*) base_url="${argument#*=}" ;;
        --sha256=*) own_sha256="${argument#*=}" ;;
        --*) usage_error "unknown flag $argument" ;;
        *) names+=("$argument") ;;
    esac
done
((${#names[@]})) || usage_error "name a corpus: $NAMES"
[[ -z "$own_sha256" || ${#names[@]} == 1 ]] || usage_error "--sha256 goes with one corpus"
for name in "${names[@]}"; do
    describe "$name" # all names are known before the first is fetched
done
for name in "${names[@]}"; do
    get "$name"
done
